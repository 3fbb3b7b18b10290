"""`horolog.testing.Broker` without pytest's help."""

import asyncio
import logging
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, fetch_fields

import horolog.testing
from horolog.broker import BackgroundTasks, dispatch
from horolog.client import Client, CommittedOffset
from horolog.clock import DAY_MS, ManualClock, SystemClock
from horolog.errors import ErrorCode, Misconfigured, RequestRefused
from horolog.record import LogRecord, build_batch, iter_headers, read_records
from horolog.storage import Files
from horolog.testing import Broker, BrokerFailed
from horolog.testing.settings import QUIET, as_text, for_tests
from horolog.wire import ApiKey

T0_MS = 1_577_836_800_000  # 2020-01-01


def produce(broker: Broker, *times_ms: int, topic: str = "t") -> list[int]:
    """Records with these times, a batch each; the append times that the broker tells."""
    with Client(broker.bootstrap_servers) as client:
        return [
            client.produce(topic, 0, build_batch([LogRecord(ms, b"k", b"v")])).log_append_time_ms
            for ms in times_ms
        ]


def log_range(broker: Broker, topic: str = "t") -> tuple[int, int]:
    with Client(broker.bootstrap_servers) as client:
        ends = []
        for which in (-2, -1):
            found = client.list_offsets({(topic, 0): which})[topic, 0]
            assert found is not None
            ends.append(found.offset)
        return ends[0], ends[1]


def offsets(broker: Broker, topic: str = "t") -> list[int]:
    """Of all records that are left."""
    found: list[int] = []
    while True:
        begin = found[-1] + 1 if found else 0
        with RawConnection(broker.bootstrap_servers) as connection:
            answer = connection.ask(ApiKey.FETCH, 12, **fetch_fields(topic, {0: begin}))
        records = answer.responses[0].partitions[0].records
        if not records:
            return found
        for position, header in iter_headers(records):
            batch = records[position : position + header.size]
            found += [record.offset for record in read_records(batch)]


def refuses_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_broker_lasts_as_long_as_its_block_and_leaves_nothing() -> None:
    threads = set(threading.enumerate())
    with Broker() as broker:
        assert broker.is_running
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        broker.create_topic("t")
        produce(broker, T0_MS)
        assert (broker.log_dir / "t-0").is_dir()
        kept_at, address = broker.log_dir, broker.bootstrap_servers
    assert not kept_at.exists()
    assert refuses_connections(address)
    assert set(threading.enumerate()) == threads
    broker.close()  # once more does no harm


def test_a_second_broker_starts_fast() -> None:
    Broker().start().close()
    took_s = [math.inf]
    while len(took_s) < 50 and min(took_s) > 0.5:  # 0.03 on an idle machine
        began = time.perf_counter()
        broker = Broker().start()
        took_s.append(time.perf_counter() - began)
        broker.close()
    assert min(took_s) <= 0.5


def test_a_place_that_was_named_is_kept(tmp_path: Path) -> None:
    with Broker(log_dir=tmp_path / "log") as broker:
        broker.create_topic("t")
        assert broker.log_dir == tmp_path / "log"
    assert (tmp_path / "log" / ".kafka_cleanshutdown").exists()
    with Broker(log_dir=str(tmp_path / "log")) as broker:
        assert log_range(broker) == (0, 0)


def test_start_and_stop_keep_port_records_topics_and_clock() -> None:
    settings, clock = {"log.message.timestamp.type": "LogAppendTime"}, ManualClock(T0_MS)
    with Broker(settings, clock=clock) as broker:
        address = broker.bootstrap_servers
        broker.create_topic("t", settings={"retention.ms": 10})
        assert produce(broker, 5) == [T0_MS]
        broker.stop()
        broker.stop()
        assert refuses_connections(address)
        assert broker.clock.advance(10) == T0_MS + 10
        assert broker.start() is broker
        broker.start()
        assert broker.bootstrap_servers == address
        assert produce(broker, 5) == [T0_MS + 10]
        broker.clock.advance(1)
        broker.expire()
        assert log_range(broker) == (0, 2)  # the later record keeps the segment
        broker.clock.advance(10)
        broker.expire()
        assert log_range(broker) == (2, 2)


def test_a_kill_leaves_what_a_kill_leaves_and_loses_nothing_acknowledged() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        produce(broker, 1, 2, 3)
        address = broker.bootstrap_servers
        broker.kill()
        assert refuses_connections(address)
        assert not (broker.log_dir / ".kafka_cleanshutdown").exists()
        broker.start()
        assert broker.bootstrap_servers == address
        assert log_range(broker) == (0, 3)


def test_a_kill_closes_connections_that_wait() -> None:
    with Broker() as broker, RawConnection(broker.bootstrap_servers) as connection:
        connection.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
        connection.send(
            ApiKey.JOIN_GROUP,
            4,
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "p", "metadata": b""}],
        )
        broker.kill()
        broker.start()
        with suppress(ConnectionResetError):  # the first member waits for the topic of groups
            assert connection.receive()[0] == 2
        assert connection.is_closed()


def test_the_clock_is_the_machines_until_it_is_turned() -> None:
    system = SystemClock()
    with Broker({"log.message.timestamp.type": "LogAppendTime"}) as broker:
        broker.create_topic("t")
        before_ms = system.now_ms()
        (told_ms,) = produce(broker, 5)
        assert before_ms <= told_ms <= system.now_ms()
        broker.clock.advance("8d")
        (told_ms,) = produce(broker, 5)
        assert before_ms + 8 * DAY_MS <= told_ms <= system.now_ms() + 8 * DAY_MS


def test_append_times_stand_still_while_the_clock_is_behind_them() -> None:
    clock = ManualClock("2020-01-01T00:00Z")
    with Broker({"log.message.timestamp.type": "LogAppendTime"}, clock=clock) as broker:
        broker.create_topic("t")
        assert produce(broker, 5) == [T0_MS]
        clock.set("2019-01-01T00:00Z")
        assert produce(broker, 5) == [T0_MS]


def test_every_kind_of_expiry_waits_for_the_clock_and_for_being_asked() -> None:
    clock = ManualClock("2020-01-01T00:00Z")
    with Broker({"producer.id.expiration.ms": DAY_MS}, clock=clock) as broker:
        broker.create_topic("t", settings={"retention.ms": DAY_MS})
        with Client(broker.bootstrap_servers) as client:
            batch = build_batch(
                [LogRecord(T0_MS, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0
            )
            client.produce("t", 0, batch)
            client.offset_commit("g", {("t", 0): CommittedOffset(1)})
        clock.advance(DAY_MS - 1)
        assert broker.expire() == (0, 0, 0)
        clock.advance(2)
        assert broker.expire() == (1, 0, 1)
        names = sorted(path.name for path in (broker.log_dir / "t-0").glob("*.deleted"))
        assert names, "deleted files stay for file.delete.delay.ms"
        clock.advance("60s")
        assert broker.expire() == (0, 0, 0)
        assert not list((broker.log_dir / "t-0").glob("*.deleted"))
        clock.advance("6d")
        assert broker.expire() == (0, 1, 0)


def open_transaction(broker: Broker, transactional_id: str = "x") -> confluent_kafka.Producer:
    """A producer with a record in an open transaction of a minute."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("t", b"v", partition=0)
    producer.flush()
    return producer


def last_stable_offset(broker: Broker) -> int:
    with Client(broker.bootstrap_servers) as client:
        found = client.list_offsets({("t", 0): -1}, read_committed=True)["t", 0]
        assert found is not None
        return found.offset


@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_transaction_is_aborted_as_the_clock_passes_its_timeout(is_frozen: bool) -> None:
    clock = ManualClock("2020-01-01T00:00Z") if is_frozen else None
    with Broker(clock=clock) as broker:
        broker.create_topic("t")
        producer = open_transaction(broker)
        broker.clock.advance("50s")
        assert last_stable_offset(broker) == 0, "a part of the minute is left"
        broker.clock.step("1h")
        assert last_stable_offset(broker) == 0, "no time has passed"
        broker.clock.set(broker.clock.now_ms() + 20_000)
        assert last_stable_offset(broker) == 2
        with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
            producer.commit_transaction(PATIENCE_S)


def test_a_transaction_that_timed_out_while_the_broker_was_stopped_is_aborted_when_asked() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        producer = open_transaction(broker)
        broker.stop()
        broker.clock.advance("5m")
        broker.start()
        broker.expire()
        assert last_stable_offset(broker) == 2
        with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
            producer.commit_transaction(PATIENCE_S)


def test_transactional_ids_expire_when_asked() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        open_transaction(broker).commit_transaction(PATIENCE_S)
        broker.expire()  # which waits until the transaction is completed

        def code() -> int:
            with RawConnection(broker.bootstrap_servers) as connection:
                described = connection.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["x"])
            return int(described.transaction_states[0].error_code)

        broker.clock.advance("6d")
        broker.expire()
        assert code() == 0
        broker.clock.advance("2d")
        broker.expire()
        assert code() == ErrorCode.transactional_id_not_found


@pytest.mark.parametrize("how", ["advance", "expire"])
def test_what_is_due_is_compacted_at_once(how: str) -> None:
    settings = {"cleanup.policy": "compact", "segment.ms": 60_000}
    with Broker(clock=ManualClock("2020-01-01T00:00Z")) as broker:
        broker.create_topic("t", settings=settings)
        produce(broker, *[T0_MS] * 5)
        broker.clock.advance("10m")
        produce(broker, broker.clock.now_ms())
        assert offsets(broker) == [0, 1, 2, 3, 4, 5], "nothing is compacted by itself"
        if how == "advance":
            broker.clock.advance(1)
        else:
            broker.expire()
        assert offsets(broker) == [4, 5]


def test_nothing_is_compacted_where_the_cleaner_is_off() -> None:
    settings = {"cleanup.policy": "compact", "segment.ms": 60_000}
    with Broker({"log.cleaner.enable": False}) as broker:
        broker.create_topic("t", settings=settings)
        produce(broker, *[broker.clock.now_ms()] * 5)
        broker.clock.advance("10m")
        produce(broker, broker.clock.now_ms())
        broker.expire()
        assert len(offsets(broker)) == 6


def test_a_clock_of_several_brokers_is_followed_by_those_that_run() -> None:
    clock = ManualClock.following()
    with Broker(clock=clock) as first, Broker(clock=clock) as second:
        for broker in first, second:
            broker.create_topic("t")
            open_transaction(broker)
        second.stop()
        clock.advance("5m")
        assert last_stable_offset(first) == 2
        second.start()
        assert last_stable_offset(second) == 0
        clock.advance(1)
        assert last_stable_offset(second) == 2


def test_directories_of_deleted_topics_are_removed_once_though_two_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    remove = Files.os_rmtree

    def slow(files: Files, path: str) -> None:
        is_first = not begun.is_set()
        begun.set()
        assert not is_first or goes_on.wait(PATIENCE_S)
        remove(files, path)

    with Broker() as broker, ThreadPoolExecutor() as pool:
        broker.create_topic("t")
        with Client(broker.bootstrap_servers) as client:
            client.delete_topics(["t"])
        broker.clock.advance("1m")
        monkeypatch.setattr(Files, "os_rmtree", slow)
        first = pool.submit(broker.expire)
        assert begun.wait(PATIENCE_S)
        second = pool.submit(broker.expire)
        broker.create_topic("u", partitions=20)  # meanwhile the second has begun, too
        goes_on.set()
        assert first.result(PATIENCE_S) == second.result(PATIENCE_S) == (0, 0, 0)
        assert not list(broker.log_dir.glob("t-0*"))


def test_deleted_topics_leave_the_disk_by_the_clock() -> None:
    clock = ManualClock("2020-01-01T00:00Z")
    with Broker(clock=clock) as broker:
        broker.create_topic("t")
        with Client(broker.bootstrap_servers) as client:
            client.delete_topics(["t"])
        broker.expire()
        assert list(broker.log_dir.glob("t-0.*-delete"))
        clock.advance("1m")
        broker.expire()
        assert not list(broker.log_dir.glob("t-0*"))


def test_expire_while_the_broker_expires_by_itself() -> None:
    clock = ManualClock("2020-01-01T00:00Z")
    quick = {"log.retention.check.interval.ms": 1, "log.segment.delete.delay.ms": 0}
    with Broker(quick, clock=clock) as broker:
        broker.create_topic("t", settings={"retention.ms": 1, "segment.bytes": 100})
        for _ in range(20):
            produce(broker, clock.now_ms())
            clock.advance(2)
            broker.expire()
        assert log_range(broker) == (20, 20)


def test_who_asks_for_retention_by_itself_has_it() -> None:
    with Broker({"log.retention.check.interval.ms": 10}) as broker:
        broker.create_topic("t")
        produce(broker, broker.clock.now_ms())
        broker.clock.advance("8d")
        assert eventually(lambda: log_range(broker) == (1, 1))


def test_topics_have_the_settings_they_are_given() -> None:
    with Broker({"num.partitions": 4, "auto.create.topics.enable": False}) as broker:
        broker.create_topic("t", partitions=3, settings={"retention.ms": -1, "preallocate": True})
        with Client(broker.bootstrap_servers) as client:
            assert len(client.metadata(["t"]).topics["t"].partitions) == 3
        with pytest.raises(RequestRefused, match="already exists") as refused:
            broker.create_topic("t")
        assert refused.value.code is ErrorCode.topic_already_exists
        with pytest.raises(RequestRefused, match=r"Unknown topic config name: retention\.m"):
            broker.create_topic("u", settings={"retention.m": 5})
        with pytest.raises(TypeError, match=r"retention\.ms=None: a setting is a text"):
            broker.create_topic("u", settings={"retention.ms": None})


def test_a_failed_start_gives_its_reason_and_leaves_nothing(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(Misconfigured, match="Unknown broker config name: nonsense"):
        Broker({"nonsense": 1}, log_dir=tmp_path).start()
    with Broker(log_dir=tmp_path) as first:
        second = Broker(log_dir=tmp_path)
        with pytest.raises(Misconfigured, match="lock"):
            second.start()
        assert not second.is_running
        first.create_topic("t")
    second.start()
    second.close()
    assert set(threading.enumerate()) == threads


def test_calls_to_a_stopped_broker_raise_an_error() -> None:
    broker = Broker()
    assert "stopped" in repr(broker)
    with pytest.raises(AssertionError, match="was never started"):
        _ = broker.bootstrap_servers
    with pytest.raises(AssertionError, match=r"not running: call start\(\)"):
        broker.expire()
    with broker:
        assert "running" in repr(broker)
    with pytest.raises(AssertionError, match="not running"):
        broker.create_topic("t")


@pytest.fixture
def with_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(request: object, broker: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(dispatch.HANDLERS, ApiKey.LIST_GROUPS, handle)


def meet_bug(broker: Broker) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send(ApiKey.LIST_GROUPS, 0)
        assert connection.is_closed()


@pytest.mark.usefixtures("with_bug")
def test_a_bug_of_the_broker_is_raised_once_when_it_stops() -> None:
    broker = Broker().start()
    meet_bug(broker)
    with pytest.raises(BrokerFailed, match="ZeroDivisionError: a bug"):
        broker.stop()
    assert not broker.is_running
    broker.start()
    broker.close()


@pytest.mark.usefixtures("with_bug")
def test_a_failing_test_reports_a_bug_of_the_broker_too() -> None:
    def fails() -> None:
        with Broker() as broker:
            meet_bug(broker)
            raise KeyError("why the test failed")

    with pytest.raises(KeyError) as failed:
        fails()
    assert any("ZeroDivisionError" in note for note in failed.value.__notes__)


def test_an_unhandled_asyncio_error_is_a_bug_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave_behind(*_: object) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    monkeypatch.setattr(BackgroundTasks, "expire", leave_behind)
    broker = Broker().start()
    broker.expire()
    with pytest.raises(BrokerFailed, match="ZeroDivisionError"):
        broker.close()


def test_bugs_of_others_are_not_the_brokers(caplog: pytest.LogCaptureFixture) -> None:
    with Broker():
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            logging.getLogger("horolog.client").exception("in the test's thread")
    assert len(caplog.records) == 1


def test_what_the_broker_logs_can_be_captured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="horolog")
    with Broker() as broker:
        broker.create_topic("t")
    assert "created topic t with 1 partition(s)" in caplog.messages


def test_settings_for_tests_are_weaker_than_what_is_given() -> None:
    assert for_tests({})["log.message.timestamp.after.max.ms"] == str((1 << 63) - 1)
    given = {"log.message.timestamp.after.max.ms": "5", "log.retention.check.interval.ms": "7"}
    settings = for_tests(given)
    assert settings == QUIET | given | {"log.initial.task.delay.ms": "7"}
    assert as_text({"a": True, "b": 0.5, "c": -1, "d": "x"}) == {
        "a": "true",
        "b": "0.5",
        "c": "-1",
        "d": "x",
    }


def test_a_lifted_bound_leaves_the_older_one_to_decide() -> None:
    clock = ManualClock("2020-01-01T00:00Z")
    settings = {"log.message.timestamp.difference.max.ms": 1_000}
    with Broker(settings, clock=clock) as broker:
        broker.create_topic("t")
        produce(broker, T0_MS + 1_000)
        with pytest.raises(RequestRefused) as refused:
            produce(broker, T0_MS + 1_001)
        assert refused.value.code is ErrorCode.invalid_timestamp


def test_public_names_are_exported_by_the_package() -> None:
    for name in horolog.testing.__all__:
        assert getattr(horolog.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Brokr'"):
        _ = horolog.testing.Brokr
