from datetime import UTC, datetime
from pathlib import Path

import pytest

from horolog.errors import Misconfigured
from horolog.jobs.selection import Selection, client_of
from horolog.sources import Location


@pytest.mark.parametrize(
    "text", ["127.0.0.1:9092", "kafka-1:9092,kafka-2:9093", "[::1]:9092", " broker.example:1 "]
)
def test_addresses_are_brokers(text: str) -> None:
    assert Location.parse(text).is_broker


@pytest.mark.parametrize(
    "text", ["/var/lib/kafka", "log", "./name:9092", "s3://bucket/log", "C:/logs", Path("a:1")]
)
def test_all_else_is_a_path(text: str | Path) -> None:
    found = Location.parse(text)
    assert not found.is_broker
    assert found.path is not None
    assert found.path.uri == (text if text == "s3://bucket/log" else str(Path(text).absolute()))


def test_an_empty_source_and_a_port_that_cannot_be_are_refused() -> None:
    with pytest.raises(Misconfigured, match="target is empty"):
        Location.parse("  ", "target")
    with pytest.raises(Misconfigured, match="the port must be a number"):
        Location.parse("127.0.0.1:99999")


def test_a_selection_becomes_options_of_the_format() -> None:
    found = Selection.of(
        "127.0.0.1:9092",
        topics=" clicks, views,clicks",
        from_="2026-11-17T09:00Z",
        to=1_795_165_200_000,
        settings={"kafka.security.protocol": "PLAINTEXT"},
    )
    assert found.options(columns="timestampMs") == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.security.protocol": "PLAINTEXT",
        "subscribe": "clicks,views",
        "fromTimestamp": "1794906000000",
        "toTimestamp": "1795165200000",
        "columns": "timestampMs",
    }
    assert found.read_options().times.range.first_ms == 1_794_906_000_000


def test_files_may_be_read_without_naming_topics_and_a_broker_may_not(tmp_path: Path) -> None:
    assert Selection.of(tmp_path).options() == {"path": str(tmp_path)}
    with pytest.raises(Misconfigured, match="give the topics"):
        Selection.of("127.0.0.1:9092")
    with pytest.raises(Misconfigured, match="not both"):
        Selection.of(tmp_path, topics="a", topics_pattern="b")
    with pytest.raises(Misconfigured, match=r"topics-pattern=.*no look-around"):
        Selection.of(tmp_path, topics_pattern="(?!_).*")
    with pytest.raises(Misconfigured, match="later than to"):
        Selection.of(tmp_path, from_=2, to=1)


def test_times_below_zero_are_times() -> None:
    found = Selection.of("./log", from_="1955-11-05T00:00Z", to=-1)
    assert (found.from_ms, found.to_ms) == (-446_774_400_000, -1)


def test_datetimes_need_a_zone() -> None:
    found = Selection.of("./log", from_=datetime(1970, 1, 2, tzinfo=UTC))
    assert found.from_ms == 86_400_000
    with pytest.raises(Misconfigured, match="has no zone"):
        Selection.of("./log", to=datetime(2026, 1, 2))  # noqa: DTZ001 - refused for that
    with pytest.raises(Misconfigured, match="beyond 64 bits"):
        Selection.of("./log", to=1 << 63)


def test_secrets_are_not_shown() -> None:
    found = Selection.of("./log", settings={"kafka.ssl.key.password": "secret"})
    assert "secret" not in repr(found)


def test_a_client_needs_a_broker_and_settings_of_a_client() -> None:
    with pytest.raises(Misconfigured, match="is a path"):
        client_of(Location.parse("./log"), {})
    with pytest.raises(Misconfigured, match="no setting of a client"):
        client_of(Location.parse("a:1"), {"colour": "red"})
