"""Kafka's security settings: obeyed, ignored where Java ignores them, or refused by name."""

import pickle

import pytest

from horolog.client import Client, ClientConfig, Security
from horolog.errors import Misconfigured

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required {};"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": JAAS.format('username="alice" password="hush hush"'),
}
TLS = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security.protocol": "TLS"}, "allowed are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"ssl.truststore.locaton": "x"}, "did you mean 'ssl.truststore.location'"),
        ({"ssl.ca.location": "x"}, "setting of librdkafka; Kafka's own name is ssl.truststore"),
        ({"sasl.mechanisms": "PLAIN"}, "Kafka's own name is sasl.mechanism"),
        ({**TLS, "ssl.engine.factory.class": "x"}, "ssl.engine.factory.class is not supported"),
        ({**TLS, "ssl.cipher.suites": "x"}, "ssl.cipher.suites is not supported"),
        ({**TLS, "ssl.truststore.type": "BKS"}, "supported are JKS, PKCS12 and PEM"),
        ({**TLS, "ssl.truststore.certificates": "x"}, "needs ssl.truststore.type=PEM"),
        (
            {**TLS, "ssl.keystore.type": "PEM", "ssl.keystore.key": "x"},
            "ssl.keystore.key needs ssl.keystore.certificate.chain",
        ),
        (
            {
                **TLS,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "x",
                "ssl.truststore.location": "y",
            },
            "not both",
        ),
        (
            {**TLS, "ssl.keystore.type": "PEM", "ssl.keystore.password": "x"},
            "ssl.keystore.password has no meaning for PEM",
        ),
        ({**TLS, "ssl.endpoint.identification.algorithm": "ldaps"}, "allowed are https"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI, which is Kafka's default, is not supported"),
        ({**PLAIN, "sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM is not supported"),
        ({**PLAIN, "sasl.jaas.config": ""}, "needs sasl.jaas.config"),
        ({**PLAIN, "sasl.jaas.config": JAAS.format('username="a"')}, "has no password"),
        ({**PLAIN, "sasl.login.class": "x"}, "sasl.login.class is not supported"),
        ({**PLAIN, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": ""}, "needs a token"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_by_name(settings: dict[str, str], said: str) -> None:
    with pytest.raises(Misconfigured, match=said) as refused:
        Client("localhost:9092", security=settings)
    assert "hush" not in str(refused.value)


def test_settings_of_a_protocol_that_is_not_spoken_have_no_effect() -> None:
    tls = {"ssl.truststore.location": "/nowhere", "ssl.engine.factory.class": "x"}
    assert Security.of(tls) == Security()
    assert Security.of({**PLAIN, **tls}) == Security.of(PLAIN)
    assert Security.of({**PLAIN, "bootstrap.servers": "x", "other": "y"}) == Security.of(PLAIN)


def test_secrets_are_in_no_repr() -> None:
    secrets = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN["sasl.jaas.config"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "hush key",
        "ssl.keystore.certificate.chain": "chain",
        "ssl.key.password": "hush password",
        "ssl.truststore.location": "/trusted",
    }
    client = Client("localhost:9092", security=secrets)
    shown = repr(client.config)
    assert "hush" not in shown
    assert "/trusted" in shown
    assert client.config.security.get("ssl.key.password") == "hush password"


def test_a_pickled_client_keeps_its_credentials() -> None:
    client = Client("localhost:9092", security=PLAIN)
    copy = pickle.loads(pickle.dumps(client))
    assert (
        copy.config
        == client.config
        == ClientConfig(bootstrap_servers="localhost:9092", security=Security.of(PLAIN))
    )
    assert "hush" not in repr(copy.config)
