"""Metrics that alerts are computed from: what is wrong, and what a broker may run out of."""

from __future__ import annotations

import os
import shutil
import time

import pytest
import rights_matrix as matrix
from certificates import Certificates, client_context
from faulty_calls import failing
from metrics_page import scrape
from overrides import override
from running_broker import NOW_MS, MakeBroker, RunningBroker, a_broker

from horolog.broker.health import KINDS
from horolog.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock
from horolog.errors import StorageFailed
from horolog.record import LogRecord, build_batch
from horolog.storage import Log
from horolog.wire import ApiKey

broker = a_broker(horolog_metrics_port="0")
HELD = "horolog_retention_held_partitions"
WITHDRAWN = "horolog_topic_complete_withdrawn_partitions"


def send(broker: RunningBroker, topic: str, *times: int, partition: int = 0) -> bytes:
    batch = build_batch([LogRecord(each, None, b"v") for each in times])
    assert broker.produce(topic, batch, partition).error_code == 0
    return batch


def tick(broker: RunningBroker) -> None:
    broker.run(broker.broker.partitions.keep_stamp_clock())


def test_problems_of_health_are_counted_by_kind(broker: RunningBroker, clock: ManualClock) -> None:
    broker.create_topic("t", 2)
    problems = scrape(broker).of("horolog_health_problems")
    assert len(problems) == len(KINDS)
    assert set(problems.values()) == {0}
    send(broker, "t", NOW_MS)
    clock.step("-2h")
    found = scrape(broker)
    assert found.value("horolog_health_problems", kind="append-time-ahead") == 1
    assert sum(found.of("horolog_health_problems").values()) == 1


def test_a_lost_log_directory_is_an_offline_one(broker: RunningBroker) -> None:
    name = "kafka_log_logmanager_offlinelogdirectorycount"
    free, size = (f"horolog_log_directory_{each}_bytes" for each in ("free", "size"))
    found = scrape(broker)
    assert found.value(name) == 0
    assert 0 < found.value(free) < found.value(size)
    shutil.rmtree(broker.log_dir)
    broker.run(broker.service.background_tasks.tidy())
    found = scrape(broker)
    assert found.value(name) == found.value("horolog_health_problems", kind="lost") == 1
    assert found.of(free) == found.of(size) == {}
    os.mkdir(broker.log_dir)  # for the stop


def test_jumps_of_the_clock_are_counted_by_direction_and_its_passing_is_not(
    broker: RunningBroker, clock: ManualClock
) -> None:
    def jumps() -> tuple[float, float]:
        tick(broker)
        found = scrape(broker)
        name = "horolog_clock_jumps_total"
        return found.value(name, direction="ahead"), found.value(name, direction="back")

    ahead = "horolog_append_clock_ahead_milliseconds"
    clock.advance(DAY_MS)
    assert jumps() == (0, 0)
    clock.step("2h")
    assert jumps() == (1, 0)
    assert scrape(broker).value(ahead) == 0
    clock.step("-3h")
    assert jumps() == (1, 1)
    assert scrape(broker).value(ahead) == 3 * HOUR_MS
    clock.step("50m")
    assert jumps() == (1, 1)


def test_records_that_retention_deletes_at_once_are_counted_on_arrival(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t", retention_ms=str(HOUR_MS))
    broker.create_topic("by-append-time", retention_ms="1", horolog_retention_by="append-time")
    for topic in ("t", "by-append-time"):
        send(broker, topic, NOW_MS - 2 * HOUR_MS, NOW_MS)
        send(broker, topic, NOW_MS - 2 * HOUR_MS, NOW_MS - 3 * HOUR_MS)
    name = "horolog_expired_on_arrival_records_total"
    assert scrape(broker).of(name) == {(): 2, (("topic", "t"),): 2}


def test_bytes_that_retention_deletes_are_counted_by_reason_until_their_topic_goes(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("old", retention_ms=str(HOUR_MS))
    broker.create_topic("large", retention_bytes="1")
    old, large = send(broker, "old", NOW_MS), send(broker, "large", NOW_MS)
    broker.roll("large")
    send(broker, "large", NOW_MS)
    name = "horolog_retention_deleted_bytes_total"
    assert not scrape(broker).of(name)
    clock.advance(HOUR_MS + 1)
    broker.run(broker.service.background_tasks.run_retention())
    expected = {
        (("reason", "expired"), ("topic", "old")): len(old),
        (("reason", "beyond-retention-bytes"), ("topic", "large")): len(large),
    }
    assert scrape(broker).of(name) == expected
    broker.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["old"], timeout_ms=1000)
    del expected[("reason", "expired"), ("topic", "old")]
    assert scrape(broker).of(name) == expected


def test_partitions_that_retention_keeps_for_an_odd_reason_are_counted(
    broker: RunningBroker, clock: ManualClock
) -> None:
    far = {"retention_ms": str(HOUR_MS), "message_timestamp_after_max_ms": str(9 * DAY_MS)}
    broker.create_topic("t", 3, **far)
    send(broker, "t", NOW_MS, partition=0)
    send(broker, "t", NOW_MS + 3 * HOUR_MS, partition=1)
    broker.run(broker.service.background_tasks.run_retention())
    assert scrape(broker).of(HELD) == {(("reason", "ahead-of-clock"), ("topic", "t")): 1}
    clock.advance(2 * HOUR_MS)
    broker.run(broker.service.background_tasks.run_retention())
    assert not scrape(broker).of(HELD), "an hour ahead is no more than a wrong zone"


def test_completeness_that_is_withdrawn_is_counted_by_reason(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.create_topic("bounded", 2, message_timestamp_before_max_ms=str(MINUTE_MS))
    broker.create_topic("unbounded")
    clock.advance(HOUR_MS)
    tick(broker)
    assert not scrape(broker).of(WITHDRAWN)
    broker.alter("bounded", message_timestamp_before_max_ms=str(HOUR_MS))
    raised = (("reason", "bound raised"), ("topic", "bounded"))
    assert scrape(broker).of(WITHDRAWN) == {raised: 2}
    assert not scrape(broker).of("horolog_topic_complete_until_milliseconds")
    clock.advance(HOUR_MS)
    tick(broker)
    assert not scrape(broker).of(WITHDRAWN)


def test_failed_runs_of_a_background_task_are_counted(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", 2, retention_ms="1")
    name = "horolog_background_task_failures_total"
    assert scrape(broker).of(name) == {(): 0}, "an increase is seen from the first one"

    failing(monkeypatch, Log, "apply_retention", StorageFailed("the disk refused"))
    for runs in (1, 2):
        broker.run(broker.service.background_tasks.run_retention())
        both = {(): 2 * runs, (("task", "retention"),): 2 * runs}
        assert scrape(broker).of(name) == both


def test_what_holds_the_event_loop_is_in_its_delays(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "horolog_event_loop_delay_milliseconds"
    bounds = ("1", "5", "10", "25", "50", "100", "250", "500", "1000", "5000", "+Inf")

    def slower(bound: str) -> float:
        found = scrape(broker)
        return found.value(f"{name}_count") - found.value(f"{name}_bucket", le=bound)

    found = scrape(broker).of(f"{name}_bucket")
    assert set(found) == {(("le", bound),) for bound in bounds}
    before = slower("250")
    broker.call(lambda: time.sleep(0.5))
    broker.call(lambda: None)
    assert slower("250") > before


def test_connections_memory_files_and_processor_are_shown_beside_their_limits(
    broker: RunningBroker,
) -> None:
    connections = "kafka_server_socket_server_metrics_connection_count"
    with broker.connect(), broker.connect():
        found = scrape(broker)
        assert found.value(connections) == 2
    assert found.value("horolog_connections_limit") > 2
    assert 0 <= found.value("horolog_buffered_bytes") < found.value("horolog_buffered_bytes_limit")
    assert 0 < found.value("process_open_fds") < found.value("process_max_fds")
    assert found.value("process_resident_memory_bytes") > 10_000_000
    assert found.value("process_start_time_seconds") == NOW_MS / 1000
    assert found.value("process_cpu_seconds_total") > 0


def test_logins_and_denials_are_counted(make_broker: MakeBroker) -> None:
    quick = {"connection.failed.authentication.delay.ms": "0", "connections.max.reauth.ms": "1"}
    broker = make_broker(**matrix.OURS, **quick, horolog_metrics_port="0")
    of_plain = {"listener": matrix.LISTENER, "mechanism": "PLAIN"}
    found = scrape(broker)
    for name in ("horolog_logins_total", "horolog_failed_logins_total"):
        assert found.value(name, **of_plain) == 0
    with broker.connect() as connection, broker.connect() as silent:
        connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert scrape(broker).value("horolog_connections_without_login") == 2
        message = f"\0{matrix.user(0)}\0{matrix.PASSWORD(matrix.user(0))}".encode()
        connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        assert connection.is_silent(0.02)
        connection.send(ApiKey.METADATA, 9, topics=[])
        assert connection.is_closed()
        silent.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        silent.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message + b"wrong")
        assert silent.is_closed()
    with broker.connect() as connection:
        connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="<script>")
        assert connection.is_closed()
    found = scrape(broker)
    assert found.value("horolog_logins_total", **of_plain) == 1
    assert found.value("horolog_failed_logins_total", **of_plain) == 1
    assert found.value("horolog_failed_logins_total", listener=matrix.LISTENER, mechanism="") == 1
    assert found.value("horolog_ended_logins_total", listener=matrix.LISTENER) == 1
    assert found.value("horolog_connections_without_login") == 0


def test_what_clients_may_not_do_is_counted(make_broker: MakeBroker) -> None:
    authorizer = {"authorizer.class.name": matrix.AUTHORIZER}
    broker = make_broker(**authorizer, horolog_metrics_port="0")
    assert scrape(broker).of("horolog_denials_total") == {}
    with broker.connect() as connection:
        topics = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        connection.ask(ApiKey.CREATE_TOPICS, 7, topics=topics)
    denied = scrape(broker).of("horolog_denials_total")
    assert denied[("operation", "CREATE"), ("resource", "Topic")] == 1


def test_handshakes_are_counted_with_their_time(
    make_broker: MakeBroker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.network", SWEEP_SECONDS=0.05)
    broker = make_broker(
        listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(certificates.pem("broker")),
        horolog_login_timeout_ms="300",
        horolog_metrics_port="0",
    )
    name, failed = "horolog_tls_handshake_milliseconds", "horolog_failed_tls_handshakes_total"
    found = scrape(broker)
    assert (found.value(f"{name}_count", listener="SSL"), found.value(failed, listener="SSL")) == (
        0,
        0,
    )
    for _ in range(3):
        with broker.connect(client_context(certificates)) as connection:
            connection.ask(ApiKey.API_VERSIONS, 0)
    with broker.connect() as late, broker.connect() as other:
        other.socket.sendall(b"this is no handshake")
        assert other.is_closed()
        assert late.is_closed()
    found = scrape(broker)
    assert found.value(f"{name}_count", listener="SSL") == 3
    assert found.value(f"{name}_bucket", listener="SSL", le="+Inf") == 3
    assert found.value(f"{name}_bucket", listener="SSL", le="10000") == 3
    assert found.value(failed, listener="SSL") == 2
    assert set(found.of(failed)) == {(("listener", "SSL"),)}
