"""A clock turned over an admin call, by clients in whatever language."""

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka_clients import kafka
from patience import PATIENCE_S
from running_broker import RunningBroker

from horolog.cli.serve import manual_clock
from horolog.client import Client, CommittedOffset
from horolog.clock import DAY_MS, ManualClock, SystemClock
from horolog.errors import Misconfigured
from horolog.record import LogRecord, build_batch
from horolog.testing import Broker

pytestmark = [
    pytest.mark.filterwarnings("ignore:alter_configs has been deprecated"),
]

T0_MS = 1_577_836_800_000  # 2020-01-01
NAMES = {"horolog.clock.advance", "horolog.clock.frozen", "horolog.clock.now", "horolog.expire"}


class Refused(Exception):
    """An admin client reports that its request was refused."""


class KafkaPython:
    """kafka-python, with the newer request or the older one."""

    def __init__(self, address: str, *, incremental: bool) -> None:
        self._admin = kafka.admin.KafkaAdminClient(bootstrap_servers=address)
        self._incremental = incremental

    def turn(self, settings: dict[str, str], *, validate_only: bool = False) -> None:
        resource = kafka.admin.ConfigResource("BROKER", "1", settings)
        told = self._admin.alter_configs(
            [resource], incremental=self._incremental, validate_only=validate_only
        )
        if told["broker"]["1"] != "OK":
            raise Refused(told["broker"]["1"])

    def describe(self) -> dict[str, Any]:
        resource = kafka.admin.ConfigResource("BROKER", "1")
        told = self._admin.describe_configs([resource], config_filter="all")["broker"]["1"]
        return {name: config["value"] for name, config in told.items()}

    def close(self) -> None:
        self._admin.close()


class Confluent:
    """confluent-kafka, with the newer request or the older one."""

    def __init__(self, address: str, *, incremental: bool) -> None:
        self._admin = AdminClient({"bootstrap.servers": address})
        self._incremental = incremental

    def turn(self, settings: dict[str, str], *, validate_only: bool = False) -> None:
        if self._incremental:
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in settings.items()
            ]
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
            told = self._admin.incremental_alter_configs([resource], validate_only=validate_only)
        else:
            resource = ConfigResource(ResourceType.BROKER, "1", set_config=settings)
            told = self._admin.alter_configs([resource], validate_only=validate_only)
        try:
            told[resource].result(30)
        except confluent_kafka.KafkaException as error:
            raise Refused(error.args[0].str()) from error

    def describe(self) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.BROKER, "1")
        told = self._admin.describe_configs([resource])[resource].result(30)
        return {name: entry.value for name, entry in told.items()}

    def close(self) -> None:
        """Closed with its last reference."""


Admin = KafkaPython | Confluent


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(clock=ManualClock("2020-01-01T00:00Z")) as broker:
        yield broker


@pytest.fixture(
    scope="module",
    params=[(KafkaPython, True), (KafkaPython, False), (Confluent, True), (Confluent, False)],
    ids=lambda param: f"{param[0].__name__}-{'incremental' if param[1] else 'replacing'}",
)
def admin(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Admin]:
    make, incremental = request.param
    admin = make(broker.bootstrap_servers, incremental=incremental)
    yield admin
    admin.close()


@pytest.fixture(autouse=True)
def _clock(broker: Broker) -> None:
    broker.clock.freeze("2020-01-01T00:00Z")


def test_any_client_moves_the_clock_and_sees_what_it_shows(admin: Admin, broker: Broker) -> None:
    admin.turn({"horolog.clock.advance": "8d"})
    assert broker.clock.now_ms() == T0_MS + 8 * DAY_MS
    admin.turn({"horolog.clock.advance": "-1000"})
    admin.turn({"horolog.clock.now": "2019-06-01T02:00+02:00"})
    assert broker.clock.now_ms() == 1_559_347_200_000
    assert {name: admin.describe()[name] for name in NAMES} == {
        "horolog.clock.advance": "0",
        "horolog.clock.frozen": "true",
        "horolog.clock.now": "1559347200000",
        "horolog.expire": "false",
    }
    admin.turn({"horolog.clock.frozen": "false"})
    assert not broker.clock.is_frozen
    admin.turn({"horolog.clock.now": "5", "horolog.clock.frozen": "true"})
    assert (broker.clock.is_frozen, broker.clock.now_ms()) == (True, 5)


def test_a_week_passes_and_expires_in_one_request(admin: Admin, broker: Broker) -> None:
    topic = f"a-week-{uuid.uuid4()}"  # the broker is shared: a name that no earlier run has used
    broker.create_topic(topic, settings={"message.timestamp.type": "LogAppendTime"})
    with Client(broker.bootstrap_servers) as client:
        client.topics.reset_append_times(topic)  # an earlier test has moved the clock back
        client.produce(topic, 0, build_batch([LogRecord(0, None, b"v")]))
        client.offset_commit("g", {(topic, 0): CommittedOffset(1)})
        # Whatever order they come in, expiry is last.
        admin.turn({"horolog.expire": "true", "horolog.clock.advance": "8d"})
        found = client.list_offsets({(topic, 0): -2})[topic, 0]
        assert found is not None
        assert found.offset == 1
        assert client.offset_fetch("g", [(topic, 0)]) == {(topic, 0): None}


def test_a_client_that_moves_the_clock_has_transactions_time_out(
    admin: Admin, broker: Broker
) -> None:
    topic = f"a-transaction-{uuid.uuid4()}"
    broker.create_topic(topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.flush()
    with Client(broker.bootstrap_servers) as client:
        for step, stable in ("10s", 0), ("1m", 2):
            admin.turn({"horolog.clock.advance": step})
            found = client.list_offsets({(topic, 0): -1}, read_committed=True)[topic, 0]
            assert found is not None
            assert found.offset == stable


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"horolog.clock.advance": "8x"}, "8x is not a duration: write it as 8d"),
        ({"horolog.clock.now": "today"}, "today is not a time: write it as"),
        ({"horolog.clock.now": "2020-01-01T00:00"}, "has no zone"),
        ({"horolog.clock.frozen": "yes"}, "horolog.clock.frozen=yes: allowed is true or false"),
        ({"horolog.expire": "", "horolog.clock.advance": "1d"}, "horolog.expire=: allowed is"),
        ({"horolog.clock.advance": "99999999999999999999"}, "beyond 64 bits"),
        ({"horolog.clock.advance": "1d", "num.partitions": "3"}, "num.partitions"),
    ],
)
def test_what_makes_no_sense_is_refused_and_moves_nothing(
    broker: Broker, settings: dict[str, str], complaint: str
) -> None:
    admin = Confluent(broker.bootstrap_servers, incremental=True)
    with pytest.raises(Refused, match=re.escape(complaint)):
        admin.turn(settings)
    assert broker.clock.now_ms() == T0_MS


def test_validation_moves_nothing(admin: Admin, broker: Broker) -> None:
    admin.turn({"horolog.clock.advance": "8d", "horolog.expire": "true"}, validate_only=True)
    assert broker.clock.now_ms() == T0_MS


def test_settings_are_kept_and_changed_while_the_clock_is_set(admin: Admin, broker: Broker) -> None:
    """Tools that send all settings back with the older request must find theirs again."""
    admin.turn({"log.retention.ms": "123"})
    admin.turn({"log.retention.ms": "123", "horolog.clock.advance": "1s"})
    admin.turn({"horolog.clock.advance": "1s"})
    assert broker.clock.now_ms() == T0_MS + 2_000
    assert admin.describe()["log.retention.ms"] == "123"


def test_a_broker_on_the_machines_clock_refuses_and_shows_nothing(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker:
        admin = Confluent(broker.address, incremental=True)
        for settings in ({"horolog.clock.advance": "1d"}, {"horolog.expire": "true"}):
            with pytest.raises(Refused, match="this broker uses the system's clock"):
                admin.turn(settings)
        assert not NAMES & admin.describe().keys()


def test_a_broker_of_the_command_line_has_a_clock_for_other_languages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "horolog", "serve", "--port", "0", "--log-dir", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--clock", "manual:2020-01-01T00:00Z"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            address = process.stdout.readline().split()[1]
            with Client(address) as client:
                client.create_topics({"t": 1}, configs={"message.timestamp.type": "LogAppendTime"})
                now_ms = SystemClock().now_ms()  # lies years after the broker's clock
                client.produce("t", 0, build_batch([LogRecord(now_ms, None, b"v")]))
                Confluent(address, incremental=True).turn({"horolog.clock.advance": "1h"})
                batch = build_batch([LogRecord(now_ms, None, b"v")])
                assert client.produce("t", 0, batch).log_append_time_ms == T0_MS + 3_600_000
        finally:
            process.terminate()
        said = process.stderr.read()
        assert "any client can set the clock" in said
        assert "Traceback" not in said
    assert process.returncode == 0


def test_clocks_of_the_command_line() -> None:
    assert manual_clock("system") is None
    following = manual_clock("manual")
    assert following is not None
    assert not following.is_frozen
    frozen = manual_clock("manual:2020-01-01T00:00Z")
    assert frozen is not None
    assert (frozen.is_frozen, frozen.now_ms()) == (True, T0_MS)
    earlier = manual_clock("manual:-8d")
    assert earlier is not None
    assert 0 <= SystemClock().now_ms() - 8 * DAY_MS - earlier.now_ms() < 60_000
    for text in ("Manual", "hand:5", ""):
        with pytest.raises(Misconfigured, match="write system, manual or manual:2020"):
            manual_clock(text)
    with pytest.raises(Misconfigured, match="soon is not a time"):
        manual_clock("manual:soon")
