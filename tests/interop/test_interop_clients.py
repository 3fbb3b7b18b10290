"""What people do in their first hour, with the Java client, franz-go and KafkaJS."""

import time

import pytest

from horolog.clock import SystemClock

T0_MS = 1_700_000_000_000
RECORDS = [[T0_MS + at, f"key-{at % 3}", f"value {at} " * 5] for at in (5, 1, 9, 3, 9, 2)]
FOREVER = {"retention.ms": "-1"}
LONG_AGO_MS = 1_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_one_client_sends_in_any_codec_every_client_reads(
    broker, client, every_client, topic, codec
):
    name = topic(f"codec-{codec}")
    client.ask(broker, "create", topic=name, config=FOREVER)
    sent = client.ask(broker, "produce", topic=name, codec=codec, records=RECORDS)["records"]
    assert [row["offset"] for row in sent] == list(range(len(RECORDS)))
    assert [row["timestamp"] for row in sent] == [row[0] for row in RECORDS]
    for reader in every_client:
        read = reader.ask(broker, "consume", topic=name)["records"]
        rows = [[row["timestamp"], row["key"], row["value"]] for row in read]
        assert rows == RECORDS, reader.name
        assert {row["type"] for row in read} <= {"CreateTime", None}


def test_append_time_reaches_producer_and_consumer(broker, client, java_client, topic):
    name = topic("append-time")
    java_client.ask(
        broker, "create", topic=name, config={"message.timestamp.type": "LogAppendTime"}
    )
    before = SystemClock().now_ms()
    sent = client.ask(broker, "produce", topic=name, records=RECORDS)["records"]
    after = SystemClock().now_ms()
    read = client.ask(broker, "consume", topic=name)["records"]
    assert all(before - 1_000 <= row["timestamp"] <= after + 1_000 for row in read)
    assert {row["type"] for row in read} <= {"LogAppendTime", None}
    if client.name != "go":  # franz-go's promise keeps the time that the record was given
        assert [row["timestamp"] for row in sent] == [row["timestamp"] for row in read]


def test_offsets_are_found_by_time_exactly(broker, client, topic):
    name = topic("lookup")
    client.ask(broker, "create", topic=name, config=FOREVER)
    client.ask(broker, "produce", topic=name, codec="gzip", records=RECORDS)
    asked = [T0_MS, T0_MS + 1, T0_MS + 6, T0_MS + 9, T0_MS + 10]
    found = client.ask(broker, "lookup", topic=name, times=asked)["found"]
    assert [None if one is None else one[0] for one in found] == [0, 0, 2, 2, None]
    times = [None if one is None else one[1] for one in found]
    if client.name != "node":  # KafkaJS does not tell
        assert times == [T0_MS + 5, T0_MS + 5, T0_MS + 9, T0_MS + 9, None]


@pytest.mark.parametrize("client", ["java", "go"], indirect=True)  # KafkaJS has no way to ask
def test_the_largest_time_is_found(broker, client, topic):
    name = topic("largest")
    client.ask(broker, "create", topic=name, config=FOREVER)
    client.ask(broker, "produce", topic=name, codec="zstd", records=RECORDS)
    told = client.ask(broker, "largest", topic=name)
    assert told == {"offset": 2, "timestamp": T0_MS + 9}


def test_a_time_out_of_bounds_is_refused_as_the_client_reports_it(broker, client, topic):
    name = topic("rejected")
    client.ask(broker, "create", topic=name, config={"message.timestamp.before.max.ms": "60000"})
    now_ms = SystemClock().now_ms()
    sent = client.ask(broker, "produce", topic=name, records=[[now_ms, "a", "fine"]])["records"]
    assert sent[0]["offset"] == 0
    sent = client.ask(
        broker,
        "produce",
        topic=name,
        records=[[now_ms, "a", "with"], [LONG_AGO_MS, "a", "too old"]],
    )["records"]
    assert sent[1]["error"] == 32, sent
    if client.name == "java":  # it tells the record at fault from those refused with it
        assert "within" in sent[1]["message"]
        assert "part of a batch" in sent[0]["message"]
    else:
        assert sent[0]["error"] == 32, sent
    assert len(client.ask(broker, "consume", topic=name)["records"]) == 1


def test_a_time_too_far_ahead_is_refused_without_any_setting(broker, client, topic):
    name = topic("future")
    client.ask(broker, "create", topic=name)
    nanoseconds = SystemClock().now_ms() * 1_000_000
    if client.name == "go":
        nanoseconds = SystemClock().now_ms() + 7_200_000  # a float of JSON holds no more digits
    sent = client.ask(broker, "produce", topic=name, records=[[nanoseconds, "a", "b"]])["records"]
    assert sent[0]["error"] == 32, sent


def test_settings_change_and_are_read_back(broker, client, topic):
    name = topic("settings")
    client.ask(broker, "create", topic=name)
    asked = {"retention.ms": "123456", "message.timestamp.type": "LogAppendTime"}
    told = client.ask(broker, "settings", topic=name, set=asked)
    assert told == {"values": asked}


def test_a_bad_setting_is_refused_by_name(broker, client, topic):
    name = topic("bad-setting")
    client.ask(broker, "create", topic=name)
    told = client.ask(broker, "settings", topic=name, set={"retention.ms": "a week"})
    assert told["error"] == 40, told
    assert told["values"] == {"retention.ms": "604800000"}
    if client.name != "node":  # KafkaJS keeps the broker's words to itself
        assert "retention.ms" in told["message"]


def test_a_group_shares_partitions_when_a_member_joins(broker, client, java_client, topic):
    name, records = topic("group"), 40
    java_client.ask(broker, "create", topic=name, partitions=4)
    now_ms = SystemClock().now_ms()
    for partition in range(4):
        rows = [[now_ms, None, f"{partition}.{at}"] for at in range(records // 4)]
        java_client.ask(broker, "produce", topic=name, partition=partition, records=rows)
    told = client.ask(
        broker, "group", topic=name, group=f"{name}-of-{client.name}", records=records
    )
    assert told["distinct"] == records
    assert told["first"], told
    assert told["second"], told
    assert sorted(told["first"] + told["second"]) == [0, 1, 2, 3], told
    assert told["committed"] == {str(partition): records // 4 for partition in range(4)}


def test_an_idempotent_producer_appends_once(broker, client, topic):
    name = topic("idempotent")
    client.ask(broker, "create", topic=name, config=FOREVER)
    for round_ in range(2):
        sent = client.ask(broker, "produce", topic=name, idempotent=True, records=RECORDS)
        assert [row["offset"] for row in sent["records"]] == [
            round_ * len(RECORDS) + at for at in range(len(RECORDS))
        ]


def test_an_unknown_topic_is_created_at_its_first_record(broker, client, topic):
    name = topic("auto")
    now_ms = SystemClock().now_ms()
    sent = client.ask(broker, "produce", topic=name, acks="1", records=[[now_ms, None, "first"]])
    for _ in range(20):
        if "offset" in sent["records"][0]:
            break
        time.sleep(0.2)  # a client may give up on a topic that is only just being made
        sent = client.ask(
            broker, "produce", topic=name, acks="1", records=[[now_ms, None, "first"]]
        )
    assert sent["records"][0]["offset"] == 0
