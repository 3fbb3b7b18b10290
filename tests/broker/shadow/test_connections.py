"""How a source is reached, and that a broker stops whatever its source does."""

import logging
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from following import status_of
from overrides import override
from patience import eventually
from running_broker import NOW_MS, MakeBroker, RunningBroker
from scripted_broker import Silence
from scripted_source import ScriptedSource

from horolog.broker import follower as follower_module
from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey

LONG_S = 20
"""Less than `replica.socket.timeout.ms`, and than a client waits for an answer."""


def filled(source: ScriptedSource) -> ScriptedSource:
    for topic in source.topics.values():
        topic.batches = [build_batch([LogRecord(NOW_MS, None, b"v")], leader_epoch=topic.epoch)]
    return source


@pytest.fixture
def source() -> Iterator[ScriptedSource]:
    with filled(ScriptedSource("t")) as source:
        yield source


def is_followed(shadow: RunningBroker) -> bool:
    def reaches() -> bool:
        found = shadow.broker.partitions.find("t", 0)
        return found is not None and bool(found.log.high_watermark)

    return eventually(reaches)


def follower(make_broker: MakeBroker, source: ScriptedSource, **settings: str) -> RunningBroker:
    return make_broker(clock=ManualClock(NOW_MS), horolog_follow=source.address, **settings)


def stops(shadow: RunningBroker) -> float:
    begun = time.monotonic()
    shadow.stop()
    return time.monotonic() - begun


def properties(path: Path, certificates: Certificates) -> Path:
    other = path.with_suffix(".other")
    other.write_text(f"authority={certificates.authority}\n")
    path.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location=${{file:{other}:authority}}\n"
        "config.providers=file\n"
        "config.providers.file.class="
        "org.apache.kafka.common.config.provider.FileConfigProvider\n"
    )
    return path


@pytest.fixture
def secured(certificates: Certificates) -> Iterator[ScriptedSource]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem("broker"))
    with filled(ScriptedSource("t", tls=context)) as source:
        yield source


def test_a_source_is_followed_over_tls_and_left_while_it_is_silent(
    secured: ScriptedSource, make_broker: MakeBroker, certificates: Certificates, tmp_path: Path
) -> None:
    file = properties(tmp_path / "client.properties", certificates)
    shadow = follower(make_broker, secured, horolog_follow_config=str(file))
    assert is_followed(shadow)
    secured.broker.answers = {**secured.broker.answers, ApiKey.FETCH: Silence()}
    asked = len(secured.asked(ApiKey.FETCH))
    assert eventually(lambda: len(secured.asked(ApiKey.FETCH)) > asked)
    assert stops(shadow) < LONG_S


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS])
def test_a_stop_does_not_wait_for_a_silent_source(
    source: ScriptedSource, make_broker: MakeBroker, key: ApiKey
) -> None:
    source.broker.answers = {**source.broker.answers, key: Silence()}
    shadow = follower(make_broker, source)
    assert eventually(lambda: bool(source.asked(key)))
    assert stops(shadow) < LONG_S


def test_a_source_that_is_away_is_named_and_does_not_hold_up_a_start(
    make_broker: MakeBroker,
) -> None:
    shadow = make_broker(horolog_follow="127.0.0.1:1")
    assert eventually(lambda: "127.0.0.1:1" in str(shadow.broker.shadow.follower.why))
    assert shadow.client.metadata().topics == {}
    assert stops(shadow) < LONG_S


def test_a_source_that_comes_after_its_follower_is_followed_soon(
    make_broker: MakeBroker,
) -> None:
    source = make_broker()
    source.create_topic("t")
    source.stop()
    shadow = make_broker(horolog_follow=source.address)
    assert eventually(lambda: shadow.broker.shadow.follower.why is not None)
    source.restart()
    source.append("t", build_batch([LogRecord(source.clock.now_ms(), None, b"v")]))
    begun = time.monotonic()
    assert is_followed(shadow)
    assert time.monotonic() - begun < 3 * LONG_S


def test_a_file_of_properties_that_is_gone_is_named_until_it_is_back(
    secured: ScriptedSource, make_broker: MakeBroker, certificates: Certificates, tmp_path: Path
) -> None:
    file = properties(tmp_path / "client.properties", certificates)
    first = follower(make_broker, secured, horolog_follow_config=str(file))
    assert is_followed(first)
    first.stop()
    file.rename(tmp_path / "moved")
    shadow = make_broker(log_dir=first.log_dir, clock=first.clock)
    assert eventually(lambda: "client.properties" in str(shadow.broker.shadow.follower.why))
    (tmp_path / "moved").rename(file)
    topic = secured.topics["t"]
    batch = build_batch([LogRecord(NOW_MS, None, b"w")], base_offset=1, leader_epoch=topic.epoch)
    topic.batches.append(batch)
    assert eventually(lambda: shadow.broker.partitions["t", 0].log.high_watermark == 2)
    assert shadow.broker.shadow.follower.why is None


def test_a_leader_of_another_cluster_gives_nothing(
    source: ScriptedSource, make_broker: MakeBroker
) -> None:
    """Behind an address that has changed hands after the last look at the source."""
    shadow = follower(make_broker, source)
    assert is_followed(shadow)
    source.cluster_id = "other"
    source.broker.hang_up()
    asked = len(source.asked(ApiKey.FETCH))
    topic = source.topics["t"]
    topic.batches.append(
        build_batch([LogRecord(NOW_MS, None, b"w")], base_offset=1, leader_epoch=topic.epoch)
    )

    def why() -> str:
        status = status_of(shadow, "t")
        return "" if status is None else str(status.why)

    assert eventually(lambda: "of cluster other" in why())
    assert len(source.asked(ApiKey.FETCH)) <= asked + 1
    assert shadow.broker.partitions["t", 0].log.high_watermark == 1
    source.cluster_id = "scripted"
    assert eventually(lambda: shadow.broker.partitions["t", 0].log.high_watermark == 2)


def test_the_log_says_now_and_then_how_far_it_is_behind(
    source: ScriptedSource,
    make_broker: MakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    override(monkeypatch, "horolog.broker", PROGRESS_S=0.0)
    behind = {"high_watermark": follower_module.FAR_BEHIND + 1}
    source.tamper[ApiKey.FETCH] = lambda topic, answer: answer | behind
    shadow = follower(make_broker, source)
    assert eventually(lambda: "10000 offsets behind in 1 partitions" in caplog.text)
    assert "caught up" not in caplog.text
    source.tamper.clear()
    assert eventually(lambda: "caught up" in caplog.text)
    status = status_of(shadow, "t")
    assert status is not None
    assert (status.offsets_behind, status.lag_ms) == (0, 0)


def test_a_source_at_another_address_is_gone_on_with(
    source: ScriptedSource, make_broker: MakeBroker
) -> None:
    """Its brokers say in each answer where they are; the one it was found at need not be one."""
    shadow = follower(make_broker, source)
    assert is_followed(shadow)
    topic = source.topics["t"]
    with ScriptedSource() as moved:
        moved.topics = source.topics
        source.broker.advertised_port = moved.broker.port
        topic.batches.append(
            build_batch([LogRecord(NOW_MS, None, b"w")], base_offset=1, leader_epoch=topic.epoch)
        )
        source.broker.answers = {**source.broker.answers, ApiKey.FETCH: Silence()}
        assert eventually(lambda: shadow.broker.partitions["t", 0].log.high_watermark == 2)
        assert moved.asked(ApiKey.FETCH)
        shadow.stop()
