"""Key and trust stores that are hostile, or of other languages."""

import os
import socket
import ssl
from pathlib import Path

import pytest
from certificates import Certificates, client_context
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from horolog.errors import Misconfigured
from horolog.security import read_jks, server_tls, unprotected


def settings(certificates: Certificates, **more: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.pem("broker")),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM"])
@pytest.mark.parametrize("store", ["keystore", "truststore"])
@pytest.mark.parametrize("found", ["/dev/zero", "pipe", "socket", "large", "directory"])
def test_what_never_ends_is_no_store(
    certificates: Certificates, tmp_path: Path, kind: str, store: str, found: str
) -> None:
    """A client that may alter settings of the broker names any file of its machine."""
    path = tmp_path / "store"
    if found == "pipe":
        os.mkfifo(path)
    elif found == "large":
        path.touch()
        os.truncate(path, (16 << 20) + 1)
    elif found == "directory":
        path.mkdir()
    elif found == "/dev/zero":
        path = Path(found)
    with socket.socket(socket.AF_UNIX) as server:
        if found == "socket":
            server.bind(str(path))
        named = {f"ssl.{store}.type": kind, f"ssl.{store}.location": str(path)}
        with pytest.raises(Misconfigured, match=rf"^ssl\.{store}\.location={path}: "):
            server_tls({**settings(certificates), **named})


def test_a_trust_store_may_have_text_in_any_language(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Lists of authorities have their names between them."""
    store = tmp_path / "trusted.pem"
    store.write_text(f"# Főtanúsítvány\n{certificates.authority.read_text()}# fin — ✓\n")
    tls = server_tls(
        settings(
            certificates,
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(store),
            ssl_client_auth="required",
        )
    )
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(certificates, "client").wrap_bio(incoming, outgoing)
    server = tls.context.wrap_bio(outgoing, incoming, server_side=True)
    for _ in range(2):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert server.getpeercert(binary_form=True)


def test_a_key_of_megabytes_is_refused_in_time_linear_in_its_size() -> None:
    cipher = bytes(8 << 20)
    octets = bytes(20) + cipher + bytes(20)
    body = (
        b"\x30\x0e\x06\x0a\x2b\x06\x01\x04\x01\x2a\x02\x11\x01\x01\x05\x00"
        b"\x04\x83" + len(octets).to_bytes(3, "big") + octets
    )
    protected = b"\x30\x83" + len(body).to_bytes(3, "big") + body
    with pytest.raises(Misconfigured, match="does not open its key"):
        unprotected(protected, "password", "the store")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [1, 1 << 20, (1 << 32) - 1])
def test_a_store_with_fewer_entries_than_it_says_is_refused(version: int, count: int) -> None:
    head = b"\xfe\xed\xfe\xed" + version.to_bytes(4, "big") + count.to_bytes(4, "big")
    key = b"\0\0\0\1" + b"\0\1a" + bytes(8) + bytes(4)
    for entries in (b"", key, key + count.to_bytes(4, "big"), key + b"\xff" * 4 + b"\0\5X.509"):
        with pytest.raises(Misconfigured, match="cut short or damaged"):
            read_jks(head + entries + bytes(20), "the store", None)


def test_a_long_kind_of_a_certificate_is_not_repeated_whole() -> None:
    head = b"\xfe\xed\xfe\xed" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big")
    entry = b"\0\0\0\2" + b"\0\1a" + bytes(8) + b"\xff\xff" + bytes(65_535)
    with pytest.raises(Misconfigured) as refused:
        read_jks(head + entry + bytes(20), "the store", None)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(("rounds", "said"), [(20_000, None), (1_000_001, "1000000 rounds")])
@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_store_whose_password_takes_long_is_refused(
    certificates: Certificates, tmp_path: Path, rounds: int, said: str | None, store: str
) -> None:
    """The library holds the interpreter's lock while it checks one."""
    pem = certificates.pem("broker").read_bytes()
    key = load_pem_private_key(pem, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(pem)
    encryption = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(rounds).build(b"x")
    path = tmp_path / "store.p12"
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"a", key, certificate, [certificate], encryption)
    )
    named = {f"ssl.{store}.type": "PKCS12", f"ssl.{store}.location": str(path)}
    named[f"ssl.{store}.password"] = "x"
    if said is None:
        assert server_tls({**settings(certificates), **named}).certificate
    else:
        with pytest.raises(Misconfigured, match=said):
            server_tls({**settings(certificates), **named})


@pytest.mark.parametrize("part", [b"\x04\0", b"\x30\0", b"\x30\x80"])
def test_a_store_of_nothing_but_parts_is_refused(
    certificates: Certificates, tmp_path: Path, part: bytes
) -> None:
    path = tmp_path / "store.p12"
    body = part * 500_000
    path.write_bytes(b"\x30\x83" + len(body).to_bytes(3, "big") + body)
    named = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(path)}
    with pytest.raises(Misconfigured, match=r"too many parts|damaged"):
        server_tls({**settings(certificates), **named})


def test_a_store_of_parts_within_parts_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    body = b""
    for _ in range(20_000):
        body = b"\x30\x84" + len(body).to_bytes(4, "big") + body
    path = tmp_path / "store.p12"
    path.write_bytes(body)
    named = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(path)}
    with pytest.raises(Misconfigured, match="the store is damaged"):
        server_tls({**settings(certificates), **named})
