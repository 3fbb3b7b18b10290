"""Quotas over the protocol: set, described, removed, kept, and what clients over one meet."""

import ssl
import time
from contextlib import suppress
from typing import Any

import pytest
import rights_matrix as matrix
from certificates import Certificates, client_context
from metrics_page import scrape
from patience import eventually
from raw_connection import RawConnection, fetch_fields, produce_fields, topic_fields
from running_broker import BrokerProcess, MakeBroker, RunningBroker
from stepped_loop import SteppedLoop

from horolog.quotas import QuotaKey
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

ALTER, DESCRIBE = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"
TEST = {"client-id": "test"}
SWEPT_S = 6  # within which connections are looked at
WINDOW_S = 10  # (quota.window.num - 1) * quota.window.size.seconds


def batch(size: int) -> bytes:
    return build_batch([LogRecord(0, None, bytes(size))])


def change(
    connection: RawConnection,
    entity: dict[str, str | None],
    values: dict[str, float | None],
    *,
    version: int = 1,
    validate_only: bool = False,
) -> int:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in values.items()
        ],
    }
    answer = connection.ask(ALTER, version, entries=[entry], validate_only=validate_only)
    (result,) = answer.entries
    assert {part.entity_type: part.entity_name for part in result.entity} == entity
    assert bool(result.error_message) == bool(result.error_code)
    return int(result.error_code)


def described(connection: RawConnection, *parts: tuple[str, int, str | None], **more: Any) -> Any:
    names = ("entity_type", "match_type", "match")
    components = [dict(zip(names, part, strict=True)) for part in parts]
    answer = connection.ask(DESCRIBE, 1, components=components, strict=more.get("strict", False))
    assert answer.error_code == 0
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            quota.key: quota.value for quota in entry.values
        }
        for entry in answer.entries
    }


def fetch(connection: RawConnection, version: int = 12, **more: Any) -> Any:
    return connection.ask(ApiKey.FETCH, version, **fetch_fields("t", {0: 0}, **more))


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_is_set_described_removed_and_kept_over_a_restart(
    broker: RunningBroker, version: int
) -> None:
    alice = {"user": "alice", "client-id": None}
    with broker.connect() as connection:
        values: dict[str, float | None] = {PRODUCED: 1024.0, FETCHED: 2048.0}
        assert change(connection, alice, values, version=version) == 0
        assert change(connection, {"user": "bob"}, {PRODUCED: 5.0}, version=version) == 0
        assert change(connection, {"user": "bob"}, {PRODUCED: None}, version=version) == 0
        assert change(connection, {"user": "bob"}, {PRODUCED: None}, version=version) == 0
        expected = {frozenset(alice.items()): values}
        assert described(connection) == expected
    broker.restart()
    with broker.connect() as connection:
        assert described(connection) == expected


def test_a_filter_takes_what_its_parts_match(broker: RunningBroker) -> None:
    both, default = {"user": "a", "client-id": "x"}, {"user": None}
    with broker.connect() as connection:
        for entity in ({"user": "a"}, both, default, TEST):
            assert change(connection, dict(entity), {PRODUCED: 1e9}) == 0

        def found(*parts: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
            entities = described(connection, *parts, strict=strict)
            return sorted(sorted(map(str, dict(entity).values())) for entity in entities)

        assert found(("user", 0, "a")) == [["a"], ["a", "x"]]
        assert found(("user", 0, "a"), strict=True) == [["a"]]
        assert found(("user", 1, None)) == [["None"]]
        assert found(("user", 2, None)) == [["None"], ["a"], ["a", "x"]]
        assert found(("user", 2, None), ("client-id", 0, "x")) == [["a", "x"]]
        assert found(("ip", 2, None)) == []
        assert found(strict=True) == []


def test_what_is_not_allowed_changes_nothing_of_its_entity(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        assert change(connection, TEST, {PRODUCED: 5.0, FETCHED: 1.5}) == 42
        assert change(connection, {}, {PRODUCED: 5.0}) == 42
        assert change(connection, {"ip": "127.0.0.1"}, {PRODUCED: 5.0}) == 42
        assert change(connection, TEST, {PRODUCED: 5.0}, validate_only=True) == 0
        assert described(connection) == {}


@pytest.mark.parametrize("key", ["request_percentage", "controller_mutation_rate"])
def test_a_tiny_quota_for_all_does_not_shut_out_who_removes_it(
    broker: RunningBroker, key: str
) -> None:
    everybody: dict[str, str | None] = {"user": None}
    with broker.connect() as connection:
        assert change(connection, everybody, {key: 5e-324}) == 0
    with broker.connect() as connection:
        assert connection.ask(ApiKey.CREATE_TOPICS, 2, **topic_fields("new")).throttle_time_ms > 0
    with broker.connect() as connection:
        assert change(connection, everybody, {key: None}) == 0


@pytest.mark.parametrize(("entries", "code"), [(5_000, 0), (5_001, 44)])
def test_a_request_that_changes_too_many_quotas_changes_none(
    broker: RunningBroker, entries: int, code: int
) -> None:
    ops = [{"key": key, "value": 5.0, "remove": False} for key in (PRODUCED, FETCHED)]
    asked = [
        {"entity": [{"entity_type": "user", "entity_name": f"{number}"}], "ops": ops}
        for number in range(entries)
    ]
    with broker.connect() as connection:
        answer = connection.ask(ALTER, 1, entries=asked, validate_only=False)
        assert {result.error_code for result in answer.entries} == {code}
        assert len(described(connection)) == (0 if code else entries)


def test_removing_what_is_not_there_is_no_error(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        assert change(connection, TEST, {PRODUCED: 5.0}) == 0
        removed = {"nonsense": None, FETCHED: None, "connection_creation_rate": None}
        assert change(connection, TEST, {**removed, PRODUCED: None}) == 0
        assert described(connection) == {}


def test_an_entity_and_a_quota_come_once_in_a_request(broker: RunningBroker) -> None:
    def entry(*values: float) -> dict[str, Any]:
        return {
            "entity": [{"entity_type": "user", "entity_name": f"u{len(values)}"}],
            "ops": [{"key": PRODUCED, "value": value, "remove": False} for value in values],
        }

    with broker.connect() as connection:
        entries = [entry(5.0), entry(6.0, 7.0), entry(8.0)]
        answer = connection.ask(ALTER, 1, entries=entries, validate_only=False)
        assert [it.error_code for it in answer.entries] == [0, 42, 42]
        assert described(connection) == {frozenset({("user", "u1")}): {PRODUCED: 5.0}}


def test_quotas_need_a_right_to_the_settings_of_the_cluster(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS)
    with matrix.login(broker.connect(), matrix.user(0)) as connection:
        assert change(connection, TEST, {PRODUCED: 5.0}) == 31
        assert connection.ask(DESCRIBE, 1, components=[], strict=False).error_code == 31
    with matrix.login(broker.connect(), matrix.ADMIN) as connection:
        assert described(connection) == {}


@pytest.mark.parametrize("version", [3, 8, 9, 10, 12])
def test_a_produce_request_over_the_quota_is_served_and_its_client_waits(
    broker: RunningBroker, version: int
) -> None:
    broker.create_topic("t")
    with broker.connect() as other, broker.connect() as connection:
        assert change(other, TEST, {PRODUCED: 1_000.0}) == 0
        records = batch(20_000)
        fields = produce_fields("t", {0: records})
        size = len(connection.packed(ApiKey.PRODUCE, version, {**fields})) - 4
        answer = connection.ask(ApiKey.PRODUCE, version, **fields)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert abs(answer.throttle_time_ms - (size - 1_000 * WINDOW_S)) <= 1
        connection.send(ApiKey.METADATA, 4, topics=[])
        assert connection.is_silent(0.2)
        assert broker.count("t") == 1
        other.ask(ApiKey.METADATA, 4, topics=[])  # it has sent nothing


def test_a_client_is_read_again_after_its_wait(broker: RunningBroker) -> None:
    broker.create_topic("t")
    with broker.connect() as connection:
        assert change(connection, TEST, {PRODUCED: 1_000.0}) == 0
        fields = produce_fields("t", {0: batch(10_200)})
        begun = time.monotonic()
        for _ in range(2):  # the second is in the socket, or read already
            connection.send(ApiKey.PRODUCE, 9, **fields)
        waits = connection.receive()[1].throttle_time_ms
        assert 200 <= waits < 1_000
        connection.receive()
        assert time.monotonic() - begun >= waits / 1000


def test_a_produce_request_without_an_answer_counts(broker: RunningBroker) -> None:
    broker.create_topic("t")
    with broker.connect() as connection:
        assert change(connection, TEST, {PRODUCED: 1_000.0}) == 0
        connection.send(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch(20_000)}, acks=0))
        connection.send(ApiKey.METADATA, 4, topics=[])
        assert connection.is_silent(0.2)
    assert broker.count("t") == 1


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_a_fetch_over_the_quota_is_empty_and_does_not_count(
    broker: RunningBroker, version: int
) -> None:
    broker.create_topic("t")
    broker.append("t", batch(20_000))
    with broker.connect() as connection, broker.connect() as again:
        assert change(connection, TEST, {FETCHED: 1_000.0}) == 0
        answer = fetch(connection, version)
        assert answer.responses == ()
        assert 9_000 < answer.throttle_time_ms < 11_000
        connection.send(ApiKey.METADATA, 4, topics=[])
        assert connection.is_silent(0.2)
        assert change(again, TEST, {FETCHED: 2_100.0}) == 0
        answer = fetch(again, version)
        assert answer.throttle_time_ms == 0
        assert len(answer.responses[0].partitions[0].records) > 20_000


def test_a_fetch_reads_at_most_what_the_window_holds(broker: RunningBroker) -> None:
    broker.create_topic("t")
    for _ in range(10):
        broker.append("t", batch(400))
    with broker.connect() as connection:
        assert change(connection, TEST, {FETCHED: 230.0}) == 0
        asked = {"min_bytes": 1 << 20, "max_wait_ms": 60_000}
        # What is around the records does not fit as well, until the window has grown by the wait.
        assert 0 < fetch(connection, **asked).throttle_time_ms < 1_000
        answer = fetch(connection, **asked)
        assert answer.throttle_time_ms == 0
        assert len(answer.responses[0].partitions[0].records) == 230 * WINDOW_S


def test_an_empty_fetch_of_a_session_loses_no_news(broker: RunningBroker) -> None:
    broker.create_topic("t")
    with broker.connect() as connection:
        first = fetch(connection, session_epoch=0, max_wait_ms=0)
        broker.append("t", batch(20_000))
        assert change(connection, TEST, {FETCHED: 1_000.0}) == 0
        asked = {"topics": [], "session_id": first.session_id}
        empty = connection.ask(ApiKey.FETCH, 12, session_epoch=1, **asked)
        assert (empty.responses, empty.session_id) == ((), first.session_id)
        assert empty.throttle_time_ms > 0
    with broker.connect() as connection:
        assert change(connection, TEST, {FETCHED: None}) == 0
        news = connection.ask(ApiKey.FETCH, 12, session_epoch=2, **asked)
        assert len(news.responses[0].partitions[0].records) > 20_000


def test_a_replica_is_not_held_up(broker: RunningBroker) -> None:
    broker.create_topic("t")
    broker.append("t", batch(20_000))
    with broker.connect() as connection:
        assert change(connection, TEST, {FETCHED: 1.0}) == 0
        answer = fetch(connection, replica_id=2)
        assert answer.throttle_time_ms == 0
        assert len(answer.responses[0].partitions[0].records) > 20_000


def test_clients_with_other_ids_and_without_a_quota_do_not_wait(broker: RunningBroker) -> None:
    broker.create_topic("t")
    with broker.connect() as connection:
        assert change(connection, {"client-id": "other"}, {PRODUCED: 1.0}) == 0
        assert change(connection, {"user": "alice"}, {PRODUCED: 1.0}) == 0
        fields = produce_fields("t", {0: batch(20_000)})
        assert connection.ask(ApiKey.PRODUCE, 9, **fields).throttle_time_ms == 0
        assert (
            change(connection, {"user": "ANONYMOUS"}, {PRODUCED: 1.0}) == 0
        )  # the type is left out
        assert connection.ask(ApiKey.PRODUCE, 9, **fields).throttle_time_ms > 0


def test_a_quota_that_is_removed_counts_no_more_though_a_wait_goes_on(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t")
    fields = produce_fields("t", {0: batch(20_000)})
    with broker.connect() as connection, broker.connect() as other:
        assert change(connection, TEST, {PRODUCED: 1_000.0}) == 0
        assert connection.ask(ApiKey.PRODUCE, 9, **fields).throttle_time_ms > 0
        assert change(other, TEST, {PRODUCED: None}) == 0
        assert other.ask(ApiKey.PRODUCE, 9, **fields).throttle_time_ms == 0
        connection.send(ApiKey.METADATA, 4, topics=[])
        assert connection.is_silent(0.2)


def test_a_broker_stops_at_once_though_clients_wait(broker_process: BrokerProcess) -> None:
    broker_process.client.create_topics({"t": 1})
    with broker_process.connect() as connection:
        assert change(connection, TEST, {PRODUCED: 1.0}) == 0
        fields = produce_fields("t", {0: batch(20_000)})
        assert connection.ask(ApiKey.PRODUCE, 9, **fields).throttle_time_ms > 10_000_000
        begun = time.monotonic()
        assert broker_process.terminate() == 0
        assert time.monotonic() - begun < 4
        assert connection.is_closed()


@pytest.mark.parametrize("newest", [None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_waiting_client_that_disconnects_leaves_nothing(
    make_broker: MakeBroker,
    certificates: Certificates,
    newest: ssl.TLSVersion | None,
    is_orderly: bool,
) -> None:
    """Clients that connect anew would reach the limit of connections otherwise."""
    settings = {"listeners": "SSL://127.0.0.1:0", "connections.max.idle.ms": "-1"}
    settings |= {"ssl.keystore.type": "PEM"}
    settings |= {"ssl.keystore.location": str(certificates.pem("broker"))}
    if newest is None:
        settings = {"connections.max.idle.ms": "-1"}
    broker = make_broker(new_loop=SteppedLoop, **settings)
    assert isinstance(broker.loop, SteppedLoop)
    broker.create_topic("t")
    tls = None if newest is None else client_context(certificates, newest=newest)
    with broker.connect(tls) as connection:
        assert change(connection, TEST, {PRODUCED: 1.0}) == 0
        fields = produce_fields("t", {0: batch(20_000)})
        assert connection.ask(ApiKey.PRODUCE, 9, **fields).throttle_time_ms > 0
        broker.loop.advance(SWEPT_S)
        assert broker.service.connections
        if isinstance(connection.socket, ssl.SSLSocket) and is_orderly:
            connection.socket.setblocking(False)
            with suppress(ssl.SSLWantReadError):
                connection.socket.unwrap()
    for _ in range(2):  # the second time comes after the end has come
        broker.loop.advance(SWEPT_S)
    assert eventually(lambda: not broker.service.connections)


@pytest.mark.parametrize("tls", [False, True])
def test_what_a_waiting_client_sent_before_it_left_is_done(
    make_broker: MakeBroker, certificates: Certificates, tls: bool
) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM"}
    settings |= {"ssl.keystore.location": str(certificates.pem("broker"))}
    broker = make_broker(
        new_loop=SteppedLoop, **(settings if tls else {}), **{"connections.max.idle.ms": "-1"}
    )
    assert isinstance(broker.loop, SteppedLoop)
    broker.create_topic("t")
    with broker.connect(client_context(certificates) if tls else None) as connection:
        assert change(connection, TEST, {PRODUCED: 100.0}) == 0
        large, small = (produce_fields("t", {0: batch(size)}, acks=0) for size in (900_000, 1))
        connection.send(ApiKey.PRODUCE, 9, **large)
        connection.send(ApiKey.PRODUCE, 9, **small)
    log = broker.log("t")
    assert eventually(lambda: log.log_end_offset == 1)
    for _ in range(10):
        broker.loop.advance(SWEPT_S)
        assert broker.service.connections
    broker.loop.advance(10_000)
    assert eventually(lambda: log.log_end_offset == 2)


MUTATED = "controller_mutation_rate"


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, 89), (7, 89)])
def test_topics_over_the_quota_of_mutations_are_refused_or_waited_for(
    broker: RunningBroker, version: int, code: int
) -> None:
    def create(connection: RawConnection, *names: str) -> tuple[list[int], int]:
        topics = [{"name": name, "num_partitions": 12} for name in names]
        answer = connection.ask(ApiKey.CREATE_TOPICS, version, topics=topics)
        return [topic.error_code for topic in answer.topics], answer.throttle_time_ms

    with broker.connect() as connection:
        assert change(connection, TEST, {MUTATED: 1.0}) == 0
        codes, waits = create(connection, "a", "b")
        assert codes == [0, code]
        assert 0 < waits <= 13_000
        connection.send(ApiKey.METADATA, 4, topics=[])
        assert connection.is_silent(0.2)
    assert ("b" in broker.client.metadata().topics) == (code == 0)


@pytest.mark.parametrize(("version", "code"), [(4, 0), (6, 89)])
def test_deleted_topics_count_as_well(broker: RunningBroker, version: int, code: int) -> None:
    broker.create_topic("a", 12)
    broker.create_topic("b", 12)
    with broker.connect() as connection:
        assert change(connection, TEST, {MUTATED: 1.0}) == 0
        names = {"topic_names": ["a", "b"]}
        if version >= 6:
            names = {"topics": [{"name": "a"}, {"name": "b"}]}
        answer = connection.ask(ApiKey.DELETE_TOPICS, version, **names)
        assert [it.error_code for it in answer.responses] == [0, code]
        assert answer.throttle_time_ms > 0


@pytest.mark.parametrize(("version", "code"), [(2, 0), (3, 89)])
def test_added_partitions_count_as_well(broker: RunningBroker, version: int, code: int) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    with broker.connect() as connection:
        assert change(connection, TEST, {MUTATED: 1.0}) == 0
        topics = [{"name": name, "count": 13, "assignments": None} for name in ("a", "b")]
        answer = connection.ask(ApiKey.CREATE_PARTITIONS, version, topics=topics)
        assert [it.error_code for it in answer.results] == [0, code]
        assert answer.throttle_time_ms > 0


def test_a_topic_that_a_client_only_names_is_not_made_over_the_quota(
    broker: RunningBroker,
) -> None:
    with broker.connect() as connection:
        assert change(connection, TEST, {MUTATED: 0.01}) == 0
        for name in ("a", "b"):
            topics = [{"name": name}]
            answer = connection.ask(ApiKey.METADATA, 5, topics=topics)
            assert answer.topics[0].error_code == 3
    assert [*broker.client.metadata().topics] == ["a"]


TIMED = "request_percentage"


def test_a_client_that_takes_more_time_than_its_share_waits_one_sample_at_most(
    broker: RunningBroker,
) -> None:
    with broker.connect() as connection, broker.connect() as other:
        assert change(other, TEST, {TIMED: 1e-6}) == 0
        for version in (4, 9):
            answer = connection.ask(ApiKey.METADATA, version, topics=[])
            assert answer.throttle_time_ms == 1_000
        connection.send(ApiKey.METADATA, 4, topics=[])
        assert connection.is_silent(0.2)
        assert change(other, TEST, {TIMED: None}) == 0
        assert other.ask(ApiKey.METADATA, 4, topics=[]).throttle_time_ms == 0


def test_a_produce_request_without_an_answer_is_not_held_up_for_its_time(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t")
    with broker.connect() as connection, broker.connect() as other:
        assert change(other, TEST, {TIMED: 1e-6}) == 0
        connection.send(ApiKey.PRODUCE, 9, **produce_fields("t", {0: batch(10)}, acks=0))
        assert connection.ask(ApiKey.METADATA, 4, topics=[]).throttle_time_ms == 1_000


@pytest.mark.parametrize(("size", "wait"), [(10_000, 1_000), (15_000, 5_000)])
def test_the_longer_of_two_waits_counts(broker: RunningBroker, size: int, wait: int) -> None:
    broker.create_topic("t")
    broker.append("t", batch(size))
    with broker.connect() as connection, broker.connect() as other:
        assert change(other, TEST, {TIMED: 1e-6, PRODUCED: 1_000.0, FETCHED: 1_000.0}) == 0
        fields = produce_fields("t", {0: batch(size)})
        told = [connection.ask(ApiKey.PRODUCE, 9, **fields).throttle_time_ms]
        told.append(fetch(other).throttle_time_ms)
    assert [round(one, -3) for one in told] == [wait, wait]


def test_every_kind_of_request_takes_time(broker: RunningBroker) -> None:
    broker.create_topic("t")
    broker.append("t", batch(1_000))
    requests: list[tuple[ApiKey, int, dict[str, Any]]] = [
        (ApiKey.PRODUCE, 9, produce_fields("t", {0: batch(1_000)})),
        (ApiKey.PRODUCE, 3, produce_fields("none", {0: batch(1_000)})),
        (ApiKey.FETCH, 12, fetch_fields("t", {0: 0})),
        (ApiKey.FETCH, 12, fetch_fields("t", {0: 99}, max_wait_ms=100)),
        (ApiKey.FETCH, 12, fetch_fields("t", {0: 2}, max_wait_ms=100)),
        (ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "u"}]}),
        (ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0}),
        (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [{"resource_type": 2, "resource_name": "t"}]}),
    ]
    with broker.connect() as other:
        assert change(other, {"client-id": "timed"}, {TIMED: 1e-6}) == 0
    for key, version, fields in requests:
        with broker.connect() as connection:
            connection.client_id = "timed"
            answer = connection.ask(key, version, **fields)
            assert answer.throttle_time_ms == 1_000, key
            if key is ApiKey.FETCH:
                assert answer.responses == ()
    with broker.connect() as connection:
        connection.client_id = "timed"
        assert fetch(connection, replica_id=2).throttle_time_ms == 0


@pytest.mark.parametrize("tls", [False, True])
def test_sending_counts_for_the_next_request(
    make_broker: MakeBroker, certificates: Certificates, tls: bool
) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM"}
    settings |= {"ssl.keystore.location": str(certificates.pem("broker"))}
    broker = make_broker(**(settings if tls else {}))
    with broker.connect(client_context(certificates) if tls else None) as connection:
        assert change(connection, TEST, {TIMED: 99_999.0}) == 0
        connection.ask(ApiKey.METADATA, 4, topics=[])
        (served,) = broker.service.connections
        assert broker.call(served.peer.take_used_s) > 0
        assert broker.call(served.peer.take_used_s) == 0


def test_a_client_within_its_share_does_not_wait(broker: RunningBroker) -> None:
    with broker.connect() as connection:
        assert change(connection, TEST, {TIMED: 99_999.0}) == 0
        for _ in range(10):
            assert connection.ask(ApiKey.METADATA, 4, topics=[]).throttle_time_ms == 0


CONNECTED = "connection_creation_rate"


def test_a_connection_over_the_rate_of_its_address_is_not_read_and_closed(
    broker: RunningBroker,
) -> None:
    with broker.connect() as connection:
        assert change(connection, {"ip": "127.0.0.1"}, {CONNECTED: 0.5}) == 42
        assert change(connection, {"ip": "127.0.0.1"}, {CONNECTED: 1.0}) == 0
        allowed = [broker.connect() for _ in range(WINDOW_S)]
        for other in allowed:
            other.ask(ApiKey.METADATA, 4, topics=[])
        with broker.connect() as refused:
            refused.send(ApiKey.METADATA, 4, topics=[])
            assert refused.is_silent(0.1)
            assert refused.is_closed()
        assert change(connection, {"ip": "127.0.0.1"}, {CONNECTED: None}) == 0
        with broker.connect() as again:
            again.ask(ApiKey.METADATA, 4, topics=[])
        for other in allowed:
            other.socket.close()


def test_a_broker_stops_at_once_though_connections_are_held(
    broker_process: BrokerProcess,
) -> None:
    with broker_process.connect() as connection:
        assert change(connection, {"ip": None}, {CONNECTED: 1.0}) == 0
    connections = [broker_process.connect() for _ in range(WINDOW_S + 5)]
    begun = time.monotonic()
    assert broker_process.terminate() == 0
    assert time.monotonic() - begun < 4
    for connection in connections:
        assert connection.is_closed()
        connection.socket.close()


def test_waits_are_counted_by_their_quota(make_broker: MakeBroker) -> None:
    broker = make_broker(horolog_metrics_port="0", max_connection_creation_rate="1000")
    names = [*map(str, QuotaKey), "max.connection.creation.rate"]

    def waits() -> dict[str, tuple[float, float]]:
        page = scrape(broker)
        families = ("horolog_throttled_total", "horolog_throttle_milliseconds_total")
        counts, ms = ([page.value(it, quota=name) for name in names] for it in families)
        return dict(zip(names, zip(counts, ms, strict=True), strict=True))

    assert set(waits().values()) == {(0, 0)}
    broker.create_topic("t", 1)
    with broker.connect() as connection:
        change(connection, TEST, {PRODUCED: 1_000.0, MUTATED: 0.01})
        fields = produce_fields("t", {0: batch(50_000)})
        waited_ms = connection.ask(ApiKey.PRODUCE, 8, **fields).throttle_time_ms
    assert waited_ms > 1_000
    with broker.connect() as connection:
        topics = [{"name": "u", "num_partitions": 2, "replication_factor": 1}]
        connection.ask(ApiKey.CREATE_TOPICS, 5, topics=topics, validate_only=False)
    found = waits()
    assert found[PRODUCED] == (1, waited_ms)
    assert found[MUTATED][0] == 1
    assert found[MUTATED][1] > 1_000
    assert {name for name, wait in found.items() if any(wait)} == {PRODUCED, MUTATED}

    with broker.connect() as connection:
        change(connection, {"ip": "127.0.0.1"}, {CONNECTED: 1.0})
        for _ in range(WINDOW_S + 1):
            broker.connect().socket.close()
        change(connection, {"ip": "127.0.0.1"}, {CONNECTED: None})
    assert waits()[CONNECTED][0] >= 1
