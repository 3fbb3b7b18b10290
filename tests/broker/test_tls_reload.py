"""Certificates that change while the broker runs."""

import os
import re
import shutil
import ssl
from pathlib import Path

import pytest
from certificates import PASSWORD, Certificates, client_context
from overrides import override
from patience import eventually
from raw_connection import RawConnection
from running_broker import MakeBroker, RunningBroker
from secrets_kept import Kept

from horolog.wire import ApiKey

LOCATION = "listener.name.ssl.ssl.keystore.location"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    override(monkeypatch, "horolog.network", RELOAD_SECONDS=0.05)


@pytest.fixture
def store(tmp_path: Path, certificates: Certificates) -> Path:
    return Path(shutil.copy(certificates.pem("broker"), tmp_path / "store.pem"))


@pytest.fixture
def broker(make_broker: MakeBroker, store: Path) -> RunningBroker:
    return make_broker(
        listeners="SSL://127.0.0.1:0",
        ssl_keystore_type="PEM",
        **{LOCATION: str(store)},
    )


def certificate_of(path: Path) -> bytes:
    pem = path.read_text()
    return ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])


def shown(broker: RunningBroker, certificates: Certificates) -> bytes:
    with broker.connect(client_context(certificates)) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        return connection.socket.getpeercert(binary_form=True) or b""


def alter(
    connection: RawConnection, *changes: tuple[str, str], broker: str = "1"
) -> tuple[int, str]:
    configs = [{"name": name, "config_operation": 0, "value": text} for name, text in changes]
    resource = {"resource_type": 4, "resource_name": broker, "configs": configs}
    (answer,) = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
    return answer.error_code, answer.error_message or ""


def put(source: Path, store: Path) -> None:
    """Replace a file in one step."""
    shutil.copy(source, store.with_suffix(".new"))
    os.replace(store.with_suffix(".new"), store)


def test_a_changed_file_is_loaded_and_connections_live_on(
    broker: RunningBroker, certificates: Certificates, store: Path
) -> None:
    with broker.connect(client_context(certificates)) as connection:
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        put(certificates.pem("renewed"), store)
        wanted = certificate_of(certificates.pem("renewed"))
        assert eventually(lambda: shown(broker, certificates) == wanted)
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == 0


@pytest.mark.parametrize("place", ["same", "other"])
def test_a_changed_setting_is_loaded_at_once(
    monkeypatch: pytest.MonkeyPatch,
    make_broker: MakeBroker,
    certificates: Certificates,
    store: Path,
    place: str,
) -> None:
    override(monkeypatch, "horolog.network", RELOAD_SECONDS=3_600)
    broker = make_broker(
        listeners="SSL://127.0.0.1:0", ssl_keystore_type="PEM", **{LOCATION: str(store)}
    )
    renewed = certificates.pem("renewed")
    with broker.connect(client_context(certificates)) as connection:
        if place == "same":
            put(renewed, store)
        assert alter(connection, (LOCATION, str(store if place == "same" else renewed)))[0] == 0
    assert shown(broker, certificates) == certificate_of(renewed)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("missing", "No such file"),
        ("client", r"name is CN=client, and the old one's CN=broker; ssl\.allow\.dn\.changes"),
        ("unnamed", r"lacks 1 of the alternative names of the old one; ssl\.allow\.san\.changes"),
        ("encrypted", r"encrypted: give ssl\.key\.password"),
        ("mixed", "no usable private key"),
        ("empty", "it is no PEM text"),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_old_one_stays(
    broker: RunningBroker,
    certificates: Certificates,
    store: Path,
    name: str,
    complaint: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    paths = {
        "missing": store.with_name("nowhere.pem"),
        "encrypted": certificates.encrypted_pem("renewed"),
        "mixed": store.with_name("mixed.pem"),
        "empty": store.with_name("empty.pem"),
    }
    path = paths.get(name, certificates.pem(name))
    if name == "mixed":
        key, _, _ = certificates.pem("client").read_text().partition("-----BEGIN CERT")
        _, begin, chain = certificates.pem("renewed").read_text().partition("-----BEGIN CERT")
        path.write_text(key + begin + chain)
    elif name == "empty":
        path.write_text("")
    before = shown(broker, certificates)
    with broker.connect(client_context(certificates)) as connection:
        code, message = alter(connection, (LOCATION, str(path)))
    assert code == 42
    assert re.search(complaint, message)
    if path.exists():  # the same in the place of the file that is used
        put(path, store)
        assert eventually(lambda: "stays in use" in caplog.text)
        with broker.connect(client_context(certificates)) as connection:
            code, message = alter(connection, (LOCATION, str(store)))  # 0 at Apache Kafka
        assert code == 42
        assert re.search(complaint, message)
    assert shown(broker, certificates) == before


def test_a_trust_store_is_neither_added_nor_removed(
    make_broker: MakeBroker, certificates: Certificates, store: Path
) -> None:
    prefix, pem = "listener.name.ssl.ssl.truststore", ("PEM", str(certificates.authority))
    added = tuple(zip((f"{prefix}.type", f"{prefix}.location"), pem, strict=True))
    given = {"listeners": "SSL://127.0.0.1:0", "ssl_keystore_type": "PEM", LOCATION: str(store)}
    for has_one in (False, True):
        broker = make_broker(**given, **(dict(added) if has_one else {}))
        with broker.connect(client_context(certificates)) as connection:
            code, message = alter(connection, *(added if not has_one else ((added[1][0], ""),)))
            assert code == 42
            assert "cannot be added or removed while the broker runs" in message


def test_a_password_that_changes_with_the_store_is_kept_hidden(
    broker: RunningBroker, certificates: Certificates, secrets_stay: Kept
) -> None:
    secrets_stay.exempt.add("__cluster_metadata-0")  # as in Kafka
    prefix = "listener.name.ssl.ssl."
    with broker.connect(client_context(certificates)) as connection:
        wrong = (
            (f"{prefix}key.password", "wr0ng"),
            (LOCATION, str(certificates.encrypted_pem("renewed"))),
        )
        code, message = alter(connection, *wrong)
        assert (code, "wr0ng" in message) == (42, False)
        assert alter(connection, (wrong[0][0], PASSWORD), wrong[1])[0] == 0
    assert shown(broker, certificates) == certificate_of(certificates.encrypted_pem("renewed"))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ssl.keystore.location", "only per-listener using the listener prefix"),
        ("listener.name.ssl.ssl.client.auth", "Cannot update these configs dynamically"),
        ("listener.name.ssl.ssl.enabled.protocols", "Cannot update these configs dynamically"),
        ("listener.name.ssl.ssl.principal.mapping.rules", "Cannot update these configs"),
    ],
)
def test_other_settings_of_tls_cannot_be_altered(
    broker: RunningBroker, certificates: Certificates, name: str, complaint: str
) -> None:
    with broker.connect(client_context(certificates)) as connection:
        code, message = alter(connection, (name, "required"))
    assert code == 42
    assert complaint in message


def test_a_certificate_is_altered_of_one_broker_alone(
    broker: RunningBroker, certificates: Certificates
) -> None:
    with broker.connect(client_context(certificates)) as connection:
        renewed = (LOCATION, str(certificates.pem("renewed")))
        assert alter(connection, renewed, broker="")[0] == 42
        assert alter(connection, renewed)[0] == 0
