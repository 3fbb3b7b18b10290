import json

import pytest

from horolog.client import ClientConfig
from horolog.clock import SystemClock
from horolog.errors import Misconfigured
from horolog.sources import (
    FORBIDDEN,
    OF_KAFKA_SOURCE,
    Assigned,
    AtTime,
    ByPartition,
    Everywhere,
    Pattern,
    ReadOptions,
    TopicSelection,
    task_client,
)
from horolog.storage import TopicPartition


def uris(options: dict[str, str]) -> list[str]:
    return [path.uri for path in ReadOptions.parse(options).paths]


BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def parse(**options: str) -> ReadOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return ReadOptions.parse({**BROKER, **named})


def test_a_read_of_a_broker_has_kafkas_defaults() -> None:
    options = ReadOptions.parse(BROKER)
    assert options.brokers is not None
    assert options.brokers.bootstrap_servers == "127.0.0.1:9092"
    assert options.subscription == TopicSelection(("orders",))
    assert options.batch_starting() is Everywhere.EARLIEST
    assert options.ending is Everywhere.LATEST
    assert options.fail_on_data_loss
    assert options.check_crcs
    assert not options.read_committed
    assert not options.included
    assert options.min_partitions is None
    assert options.fetching.poll_timeout_ms == 120_000


def test_names_of_options_ignore_case() -> None:
    options = ReadOptions.parse(
        {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBEpattern": "a.*", "MinPartitions": " 7 "}
    )
    assert options.subscription == Pattern("a.*", is_java=True)
    assert options.min_partitions == 7


def test_a_pattern_has_the_syntax_of_its_option() -> None:
    """`[a-z&&[^b]]` is a class in Java's syntax, and in RE2's one that "]" follows."""
    both = {}
    for option in ("subscribePattern", "topicsPattern"):
        found = ReadOptions.parse({"path": "/d", option: "[a-z&&[^b]]+"}).subscription
        assert isinstance(found, Pattern)
        both[option] = [name for name in ("a", "b", "a]") if found.matcher()(name)]
    assert both == {"subscribePattern": ["a"], "topicsPattern": ["a]"]}


def test_topics_are_separated_by_commas_and_trimmed() -> None:
    assert parse(subscribe=" b , a,,b").subscription == TopicSelection(("b", "a"))


def test_partitions_are_assigned_as_json() -> None:
    options = ReadOptions.parse({"kafka.bootstrap.servers": "h:1", "assign": '{"a":[0,2],"b":[1]}'})
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    assert options.subscription == Assigned((a, TopicPartition("a", 2), b))


def test_a_list_of_paths_comes_as_json() -> None:
    assert uris({"paths": json.dumps(["/a", "/b"])}) == ["/a", "/b"]


def test_a_relative_path_is_the_drivers(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert uris({"path": "logs/x"}) == [str(tmp_path / "logs/x")]
    assert uris({"path": "s3://bucket/x"}) == ["s3://bucket/x"]


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"startingOffsets": "earliest"}, Everywhere.EARLIEST),
        (
            {"startingOffsets": '{"orders":{"0":5,"1":-2}}'},
            ByPartition({TopicPartition("orders", 0): 5, TopicPartition("orders", 1): -2}),
        ),
        (
            {
                "startingOffsets": "earliest",
                "startingOffsetsByTimestamp": '{"orders":{"0":1700}}',
            },
            ByPartition({TopicPartition("orders", 0): 1700}, is_time=True),
        ),
        (
            {
                "startingOffsets": "earliest",
                "startingOffsetsByTimestamp": '{"orders":{"0":1700}}',
                "startingTimestamp": "42",
            },
            AtTime(42),
        ),
    ],
)
def test_a_time_for_all_wins_over_times_by_partition_and_those_over_offsets(given, start) -> None:
    assert ReadOptions.parse({**BROKER, **given}).batch_starting() == start


def test_times_may_be_written_in_words() -> None:
    assert parse(startingTimestamp="1970-01-01T01:00:00.5+01:00").starting == AtTime(500)
    assert parse(startingTimestamp="-500").starting == AtTime(-500)
    hour_ago, now = parse(startingTimestamp="-1h", endingTimestamp="-0s"), SystemClock().now_ms()
    assert isinstance(hour_ago.starting, AtTime)
    assert now - 3_700_000 < hour_ago.starting.timestamp_ms <= now - 3_600_000


def test_an_offset_may_be_written_as_any_whole_number() -> None:
    starting = parse(startingOffsets='{"orders":{"0":3.0,"+1":1e3}}').starting
    assert repr(starting) == repr(
        ByPartition({TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 1000})
    )


def test_ends_are_preferred_as_starts_are() -> None:
    assert parse(endingOffsets='{"orders":{"0":-1}}').ending == ByPartition(
        {TopicPartition("orders", 0): -1}
    )
    assert parse(endingOffsets="latest", endingTimestamp="7").ending == AtTime(7)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers' must be specified"),
        ({"kafka.bootstrap.servers": "h:1"}, "One of the following options must be specified"),
        ({**BROKER, "assign": "{}"}, "Only one of the following options"),
        ({**BROKER, "path": "/a"}, "either option 'kafka.bootstrap.servers'"),
        ({**BROKER, "subscribe": " , "}, "No topics to subscribe to"),
        ({**BROKER, "subscribe": "a,b c"}, r"Option 'subscribe': .*'b c' .* other than ASCII alph"),
        (
            {"kafka.bootstrap.servers": "h:1", "assign": '{"b/c":[0]}'},
            "Option 'assign': Topic name is invalid",
        ),
        ({"bootstrap.servers": "h:1"}, "did you mean 'kafka.bootstrap.servers'"),
        (
            {"kafka.bootstrap.servers": "h:1", "subscribePattern": " "},
            "Pattern to subscribe is empty",
        ),
        (
            {"kafka.bootstrap.servers": "h:1", "subscribePattern": "a("},
            "as Java would: missing",
        ),
        ({"path": "/a", "topicsPattern": " "}, "topicsPattern= is no pattern: it is empty"),
        ({"path": "/a", "topicsPattern": "(?!b).*"}, "topicsPattern=.*no look-around"),
        ({**BROKER, "topicsPattern": "a"}, "Only one of the following options"),
        ({"kafka.bootstrap.servers": "h:1", "assign": "orders"}, "expected e.g."),
        ({"kafka.bootstrap.servers": "h:1", "assign": '{"a":[-1]}'}, "expected e.g."),
        ({"kafka.bootstrap.servers": "h:1", "assign": "{}"}, "No partitions to assign"),
        ({"path": " "}, "is empty"),
        ({**BROKER, "endingOffsets": "earliest"}, "endingOffsets can't be earliest"),
        ({**BROKER, "endingOffsets": '{"orders":{"0":-2}}'}, "orders-0 can't be earliest"),
        ({**BROKER, "startingOffsets": '{"orders":{"0":-3}}'}, "orders-0 cannot be at -3"),
        ({**BROKER, "startingOffsets": "first"}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":{"0":1e400}}'}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":{"0":Infinity}}'}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":{"0":' + "9" * 5_000 + "}}"}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":' * 10_000}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":7}'}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":{"x":7}}'}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":{"0":1.5}}'}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":{"0":9223372036854775808}}'}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":{" 0":1}}'}, "expected e.g."),
        ({**BROKER, "startingOffsets": '{"orders":{"1_0":1}}'}, "expected e.g."),
        ({**BROKER, "startingTimestamp": "yesterday"}, "'startingTimestamp': yesterday is not"),
        ({**BROKER, "endingTimestamp": "2026-11-20T09:00"}, "'endingTimestamp': .* has no zone"),
        ({**BROKER, "startingTimestamp": "-15x"}, "-15x is not a duration"),
        ({**BROKER, "startingTimestamp": "9", "endingTimestamp": "8"}, "is after endingTimestamp"),
        (
            {
                **BROKER,
                "startingOffsets": '{"orders":{"0":9}}',
                "endingOffsets": '{"orders":{"0":8}}',
            },
            "orders-0 .9. is after",
        ),
        (
            {
                **BROKER,
                "startingOffsetsByTimestamp": '{"orders":{"0":9}}',
                "endingOffsetsByTimestamp": '{"orders":{"1":10}}',
            },
            "name different partitions: orders-0 and orders-1",
        ),
        ({**BROKER, "startingOffsetsByTimestampStrategy": "earliest"}, "one of error, latest"),
        ({**BROKER, "failOnDataLoss": "no"}, "true or false"),
        ({**BROKER, "minPartitions": "0"}, "at least 1"),
        ({**BROKER, "minPartitions": "1_0"}, "is one whole number"),
        ({**BROKER, "maxRecordsPerPartition": "0"}, "at least 1"),
        ({**BROKER, "kafka.isolation.level": "serializable"}, "read_uncommitted, read_committed"),
        ({**BROKER, "kafka.security.protocol": "TLS"}, "allowed are PLAINTEXT, SSL"),
        ({**BROKER, "kafka.security.protocol": "SASL_SSL"}, "GSSAPI, which is Kafka's default"),
        ({**BROKER, "kafka.ssl.truststore.locaton": "x"}, "did you mean 'ssl.truststore.location'"),
        ({**BROKER, "kafka.auto.offset.reset": "latest"}, "set 'startingOffsets' instead"),
        ({**BROKER, "kafka.key.deserializer": "x"}, "keys are binary"),
        ({**BROKER, "kafka.value.deserializer": "x"}, "values are binary"),
        ({**BROKER, "kafka.enable.auto.commit": "false"}, "commits no offsets"),
        ({**BROKER, "kafka.interceptor.classes": "x"}, "interceptors"),
        ({**BROKER, "kafka.isolation.levle": "x"}, "did you mean 'kafka.isolation.level'"),
        ({**BROKER, "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({**BROKER, "columns": " "}, "names no column"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_a_sentence(given, said) -> None:
    with pytest.raises(Misconfigured, match=said):
        ReadOptions.parse(given)


@pytest.mark.parametrize("starting", ["latest", '{"orders":{"0":-1}}'])
def test_a_batch_cannot_start_at_the_latest_offset(starting) -> None:
    options = parse(startingOffsets=starting)
    assert options.stream_starting() == options.starting
    with pytest.raises(Misconfigured, match="can't be latest for batch"):
        options.batch_starting()


@pytest.mark.parametrize(
    "name", ["kafka.session.timeout.ms", "kafka.group.id", "kafka.ssl.truststore.location", "other"]
)
def test_what_cannot_change_the_rows_is_accepted(name) -> None:
    assert ReadOptions.parse({**BROKER, name: "5"}) == ReadOptions.parse(BROKER)


def test_settings_of_fetching_are_obeyed() -> None:
    options = ReadOptions.parse(
        {
            **BROKER,
            "kafka.client.id": "me",
            "kafka.fetch.max.bytes": "5000",
            "kafka.max.partition.fetch.bytes": "4000",
            "kafka.fetch.max.wait.ms": "3",
            "kafka.fetch.min.bytes": "2",
            "kafka.request.timeout.ms": "1000",
            "kafkaConsumer.pollTimeoutMs": "900",
            "fetchOffset.numRetries": "8",
            "fetchOffset.retryIntervalMs": "70",
        }
    )
    fetching = options.fetching
    assert options.brokers == ClientConfig(
        bootstrap_servers="127.0.0.1:9092", client_id="me", timeout_ms=1000
    )
    assert fetching.max_bytes == 4000
    assert (fetching.max_wait_ms, fetching.min_bytes) == (3, 2)
    assert fetching.poll_timeout_ms == 900
    assert (fetching.lookup_retries, fetching.lookup_retry_interval_ms) == (8, 70)


def test_tls_and_sasl_are_handed_on_and_hidden() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
    options = ReadOptions.parse(
        {
            **BROKER,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": jaas + 'password="hush";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/etc/trusted.pem",
        }
    )
    assert options.brokers is not None
    security = options.brokers.security
    assert security.protocol == "SASL_SSL"
    assert security.get("ssl.truststore.location") == "/etc/trusted.pem"
    assert "hush" in (security.get("sasl.jaas.config") or "")
    assert "hush" not in repr(options)
    with task_client(options) as client:
        assert client.config.security == security


def test_every_option_of_sparks_kafka_source_is_known() -> None:
    """The names in its guide and in the provider of Spark 4.2, line by line."""
    names = """assign subscribe subscribePattern startingTimestamp startingOffsetsByTimestamp
        startingOffsets startingOffsetsByTimestampStrategy endingTimestamp
        endingOffsetsByTimestamp endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs
        fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger
        minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix
        includeHeaders"""
    assert set(names.split()) <= OF_KAFKA_SOURCE.keys()
    parse(kafka__group__id="g", groupIdPrefix="p", kafka__session__timeout__ms="5")
    for name in FORBIDDEN:
        with pytest.raises(Misconfigured, match=name):
            ReadOptions.parse({**BROKER, f"kafka.{name}": "true"})


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1min", 60_000), ("500us", 0), ("2500us", 2), ("1m", 60_000), ("3 min", 180_000), ("7", 7)],
)
def test_a_trigger_delay_may_be_in_sparks_units(text: str, ms: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == ms
