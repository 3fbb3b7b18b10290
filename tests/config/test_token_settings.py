"""Settings of tokens: of a mechanism, of a listener, of all, in this order."""

import pytest
import tokens

from horolog.config import Settings, TokenSettings, broker_settings
from horolog.errors import Misconfigured

OAUTH = "sasl.oauthbearer."
URL = "file:///keys.json"


def settings_of(listener: str = "TOKENS", **changed: str) -> TokenSettings:
    given = tokens.broker_settings(URL) | changed
    found = Settings(given).broker_config().logins[listener].tokens
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "claim"),
    [
        ({}, "sub"),
        ({f"{OAUTH}sub.claim.name": "all"}, "all"),
        (
            {
                f"{OAUTH}sub.claim.name": "all",
                f"listener.name.tokens.{OAUTH}sub.claim.name": "listener",
            },
            "listener",
        ),
        (
            {
                f"listener.name.tokens.oauthbearer.{OAUTH}sub.claim.name": "mechanism",
                f"listener.name.tokens.{OAUTH}sub.claim.name": "listener",
            },
            "mechanism",
        ),
        ({f"listener.name.others.oauthbearer.{OAUTH}sub.claim.name": "others"}, "sub"),
    ],
)
def test_the_narrower_setting_counts(given: dict[str, str], claim: str) -> None:
    assert settings_of(**given).rules.subject_claim == claim


def test_what_is_not_given_is_kafkas() -> None:
    found = settings_of()
    assert (found.rules.scope_claim, found.rules.skew_s) == ("scope", 30)
    assert (found.keys.refresh_ms, found.keys.backoff_ms) == (3_600_000, 100)
    assert found.keys.backoff_max_ms == 10_000


def test_two_listeners_may_have_two_issuers() -> None:
    both = {
        "listeners": "TOKENS://127.0.0.1:9092,OTHERS://127.0.0.1:9093",
        "listener.security.protocol.map": "TOKENS:SASL_PLAINTEXT,OTHERS:SASL_SSL",
        **tokens.listener_settings("OTHERS", "https://other.example/keys"),
        f"listener.name.others.oauthbearer.{OAUTH}expected.issuer": "https://other.example",
    }
    assert settings_of("TOKENS", **both).rules.issuer == tokens.ISSUER
    assert settings_of("OTHERS", **both).rules.issuer == "https://other.example"
    assert settings_of("OTHERS", **both).keys.url == "https://other.example/keys"


@pytest.mark.parametrize(
    "url",
    ["https://idp.example/keys?key=hush", "http://localhost:8080/keys", "http://[::1]/keys", URL],
)
def test_keys_come_from_where_nobody_else_can_change_them(url: str) -> None:
    found = settings_of(**{f"listener.name.tokens.oauthbearer.{OAUTH}jwks.endpoint.url": url})
    assert found.keys.url == url
    assert "hush" not in repr(found)


@pytest.mark.parametrize("url", ["http://10.0.0.1/keys", "http://idp.example/keys", "http://0/"])
def test_keys_that_others_could_change_on_their_way_are_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="use https"):
        settings_of(**{f"listener.name.tokens.oauthbearer.{OAUTH}jwks.endpoint.url": url})


def test_passwords_of_a_trust_store_are_in_no_repr() -> None:
    jaas = f'{tokens.MODULE} required ssl.truststore.location="/t" ssl.truststore.password="hush";'
    given = {"listener.name.tokens.oauthbearer.sasl.jaas.config": jaas}
    found = settings_of(**given)
    assert ("ssl.truststore.password", "hush") in found.keys.tls
    config = Settings(tokens.broker_settings(URL) | given).broker_config()
    assert "hush" not in repr(found) + repr(found.keys) + repr(config) + repr(config.logins)


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.tokens.scram-sha-512.sasl.server.callback.handler.class",
        "listener.name.tokens.oauthbearer.sasl.oauthbearer.nothing",
    ],
)
def test_a_setting_that_a_listener_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(Misconfigured, match="Unknown broker config name"):
        settings_of(**{name: "x"})


@pytest.mark.parametrize("handler", ["server", "login"])
def test_classes_for_all_listeners_are_refused_with_the_name_to_use(handler: str) -> None:
    name = f"sasl.{handler}.callback.handler.class"
    assert name in broker_settings()
    with pytest.raises(Misconfigured, match=r"listener\.name\.NAME\.oauthbearer"):
        settings_of(**{name: tokens.VALIDATOR})
