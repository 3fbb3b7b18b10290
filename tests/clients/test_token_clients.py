"""Clients that Python teams use log in by tokens: librdkafka, kafka-python, aiokafka."""

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
import tokens
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker
from tokens import Issuer, claims, token

from horolog.clock import SystemClock
from horolog.testing import ManualClock


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with tokens.running_issuer() as issuer:
        issuer.now_s = now_s()
        yield issuer


@pytest.fixture
def broker(make_broker: MakeBroker, issuer: Issuer) -> RunningBroker:
    return make_broker(clock=ManualClock.following(), **tokens.broker_settings(issuer.keys_url))


def now_s() -> int:
    return SystemClock().now_ms() // 1000


def librdkafka(broker: RunningBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        **more,
    }


def round_trip(settings: dict[str, Any]) -> None:
    producer = confluent_kafka.Producer(settings)
    producer.produce("t", b"value")
    assert producer.flush(PATIENCE_S) == 0
    reader = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, **reader})
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"value")
    finally:
        consumer.close()


def test_librdkafka_asks_the_token_endpoint(broker: RunningBroker, issuer: Issuer) -> None:
    given = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": "hush",
        "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
    }
    round_trip(librdkafka(broker, **given))
    assert "/token" in issuer.asked


def test_librdkafka_is_told_that_a_token_is_refused(broker: RunningBroker) -> None:
    errors: list[str] = []

    def oauth_cb(_: str) -> tuple[str, float]:
        return token(claims(now_s()), number=1), now_s() + 3600.0

    given = {"oauth_cb": oauth_cb, "error_cb": lambda error: errors.append(str(error))}
    producer = confluent_kafka.Producer(librdkafka(broker, **given))

    def is_told() -> bool:
        producer.poll(0.05)
        return any("invalid_token" in error for error in errors)

    assert eventually(is_told), errors


def test_librdkafka_renews_its_login_while_it_produces(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Each token is for two seconds, and the connection lives on (KIP-368)."""

    def oauth_cb(_: str) -> tuple[str, float]:
        begun = now_s()
        return token(claims(begun, exp=begun + 2)), begun + 2.0

    producer = confluent_kafka.Producer(librdkafka(broker, oauth_cb=oauth_cb))
    logins = broker.broker.login_counts.done

    def is_renewed() -> bool:
        producer.produce("t", b"value")
        assert producer.flush(PATIENCE_S) == 0
        return logins["TOKENS", "OAUTHBEARER"] > 2

    assert eventually(is_renewed)
    assert not broker.broker.login_counts.failed


def by_confluent(broker: RunningBroker) -> None:
    def oauth_cb(_: str) -> tuple[str, float]:
        return token(claims(now_s())), now_s() + 3600.0

    round_trip(librdkafka(broker, oauth_cb=oauth_cb))


class _Provider(AbstractTokenProvider):
    def token(self) -> str:
        return token(claims(now_s()))


class _AioProvider(AioTokenProvider):
    async def token(self) -> str:
        return token(claims(now_s()))


def in_python(broker: RunningBroker, provider: object) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def by_kafka_python(broker: RunningBroker) -> None:
    given = in_python(broker, _Provider())
    with KafkaProducer(**given) as producer:
        producer.send("t", b"value").get(PATIENCE_S)
    with KafkaConsumer("t", auto_offset_reset="earliest", group_id="g", **given) as consumer:
        assert next(consumer).value == b"value"


def by_aiokafka(broker: RunningBroker) -> None:
    async def exchange() -> bytes:
        given = in_python(broker, _AioProvider())
        async with AIOKafkaProducer(**given) as producer:
            await producer.send_and_wait("t", b"value")
        reader = AIOKafkaConsumer("t", auto_offset_reset="earliest", group_id="g", **given)
        async with reader as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(asyncio.wait_for(exchange(), PATIENCE_S)) == b"value"


ROUND_TRIPS = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_client_logs_in_with_a_token(broker: RunningBroker, name: str) -> None:
    ROUND_TRIPS[name](broker)
    assert not broker.broker.login_counts.failed
