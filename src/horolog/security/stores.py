"""Certificates and private keys as PEM, from stores in PEM, JKS or PKCS#12.

A store of type JKS or PKCS12 is recognised by its first bytes, as Java's own "JKS" provider does
since 9: Kafka's default type JKS opens both.
"""

import base64
import re
import textwrap
from collections.abc import Mapping
from itertools import islice, pairwise
from typing import Final, NamedTuple, Protocol

from horolog.errors import Misconfigured
from horolog.security.files import read_small
from horolog.security.jks import JKS_MAGIC, read_jks, unprotected
from horolog.security.names import der_elements

__all__ = ["Hidden", "StoredIdentity", "check_stores", "identity_of", "trusted_of"]

_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LARGEST_STORE: Final = 16 << 20
_MOST_ROUNDS: Final = 1_000_000  # a quarter of a second
_MOST_PARTS: Final = 200_000
_INTEGER, _OCTETS, _CONSTRUCTED = 0x02, 0x04, 0x20
_JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"


class Hidden(str):
    """Secret text. Its `repr` does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'[hidden]'"


class TlsSettings(Protocol):
    """Settings of TLS under Kafka's names."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a setting; None if it is missing."""
        ...


class StoredIdentity(NamedTuple):
    """A private key with its certificate chain, in PEM, and the password of an encrypted key."""

    pem: str
    password: str | None

    def __repr__(self) -> str:
        return "Identity([hidden])"


def trusted_of(security: TlsSettings) -> str | None:
    """Return the trusted certificates in PEM; None for those of the system.

    Raises:
        Misconfigured: the store cannot be read or contains no certificate.
    """
    if inline := security.get("ssl.truststore.certificates"):
        return _lines(inline)
    return _stored(security, "truststore")


def identity_of(security: TlsSettings) -> StoredIdentity | None:
    """Return the own key and its certificates; None without any.

    Raises:
        Misconfigured: the store cannot be read or contains no private key.
    """
    if key := security.get("ssl.keystore.key"):
        chain = security.get("ssl.keystore.certificate.chain") or ""
        pem: str | None = _lines(f"{key}\n{chain}")
    else:
        pem = _stored(security, "keystore")
    return None if pem is None else StoredIdentity(Hidden(pem), security.get("ssl.key.password"))


def check_stores(settings: Mapping[str, str]) -> None:
    """Refuse settings of stores that contradict each other.

    Raises:
        Misconfigured: a type is not supported, or a setting has no meaning for the type.
    """
    for kind, inline in (
        ("keystore", ("ssl.keystore.key", "ssl.keystore.certificate.chain")),
        ("truststore", ("ssl.truststore.certificates",)),
    ):
        type_name = f"ssl.{kind}.type"
        store_type = settings.get(type_name, "JKS").upper()
        if store_type not in {"JKS", "PKCS12", "PEM"}:
            raise Misconfigured(
                f"{type_name}={settings[type_name]}: supported are JKS, PKCS12 and PEM"
            )
        given = [name for name in inline if settings.get(name)]
        if given and store_type != "PEM":
            raise Misconfigured(f"{given[0]} is PEM text: it needs {type_name}=PEM")
        if given and settings.get(f"ssl.{kind}.location"):
            raise Misconfigured(f"give {given[0]} or ssl.{kind}.location, not both")
        if given and len(given) < len(inline):
            missing = next(name for name in inline if name not in given)
            raise Misconfigured(f"{given[0]} needs {missing} besides")
        if store_type == "PEM" and settings.get(f"ssl.{kind}.password"):
            raise Misconfigured(
                f"ssl.{kind}.password has no meaning for PEM; the password of a private key is "
                "ssl.key.password"
            )


def _stored(security: TlsSettings, kind: str) -> str | None:
    """Return the PEM text of a store: a key store's first key and chain, or all certificates."""
    location = security.get(f"ssl.{kind}.location")
    if not location:
        return None
    what = f"ssl.{kind}.location={location}"
    data = _read(location, what)
    if (security.get(f"ssl.{kind}.type") or "JKS").upper() == "PEM":
        text = data.decode(errors="replace")
        if "-----BEGIN " not in text:
            raise Misconfigured(f"{what}: it is no PEM text; is its type JKS or PKCS12?")
        return text
    password = security.get(f"ssl.{kind}.password")
    key: bytes | None = None
    if not data.startswith(JKS_MAGIC):
        key, certificates = _read_pkcs12(data, what, password)
    else:
        certificates, keys = read_jks(data, what, password)
        if keys and kind == "keystore":
            protected, certificates = keys[0]
            if password is None:
                raise Misconfigured(f"{what}: ssl.keystore.password is missing")
            key_password = security.get("ssl.key.password") or password
            key = unprotected(protected, key_password, what)
    parts = [_pem("CERTIFICATE", certificate) for certificate in certificates]
    if kind == "keystore":
        if key is None:
            raise Misconfigured(f"{what}: it holds no private key")
        parts.insert(0, _pem("PRIVATE KEY", key))
    if not parts:
        raise Misconfigured(f"{what}: it holds no trusted certificate")
    return "".join(parts)


def _read(location: str, what: str) -> bytes:
    try:
        return read_small(location, _LARGEST_STORE)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Misconfigured(f"{what}: {why}") from None


def _lines(text: str) -> str:
    """Restore the lines of PEM text that were joined, as in a properties file or an option."""

    def block(match: re.Match[str]) -> str:
        kind, body = match.groups()
        if ":" in body:  # headers of an old encrypted key: their lines have a meaning
            return match[0] + "\n"
        return _pem_block(kind, re.sub(r"\s|\\n", "", body))

    blocks = [block(match) for match in _PEM_BLOCK.finditer(text)]
    return "".join(blocks) or text


def _pem(kind: str, der: bytes) -> str:
    return _pem_block(kind, base64.b64encode(der).decode())


def _pem_block(kind: str, base64_text: str) -> str:
    body = "\n".join(textwrap.wrap(base64_text, 64))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n"


def _require_quick(data: bytes, what: str) -> None:
    """Refuse a PKCS#12 store whose password takes seconds to check.

    The library holds the interpreter's lock meanwhile, so that the whole broker would stop. A salt
    and the number of rounds follow one another, wherever a key is made of the password.

    Raises:
        Misconfigured: it has too many rounds or parts.
    """
    parts, count = [data], 0
    while parts:
        try:
            elements = list(islice(der_elements(parts.pop()), _MOST_PARTS))
        except ValueError:
            continue  # bytes that are no DER
        count += 1 + len(elements)
        if count > _MOST_PARTS:
            raise Misconfigured(f"{what}: it has too many parts")
        for (tag, _, _), (next_tag, number, _) in pairwise(elements):
            if (tag, next_tag) == (_OCTETS, _INTEGER) and int.from_bytes(number) > _MOST_ROUNDS:
                raise Misconfigured(
                    f"{what}: checking its password takes more than {_MOST_ROUNDS} rounds"
                )
        parts += [it for tag, it, _ in elements if tag == _OCTETS or tag & _CONSTRUCTED]


def _read_pkcs12(data: bytes, what: str, password: str | None) -> tuple[bytes | None, list[bytes]]:
    """Return the private key, if the store has one, and all certificates, the key's own first."""
    if data.startswith(_JCEKS_MAGIC):
        raise Misconfigured(
            f"{what}: stores of type JCEKS are not supported; supported are JKS, PKCS12 and PEM"
        )
    if not data.startswith(b"\x30"):
        raise Misconfigured(f"{what}: it is neither a JKS nor a PKCS12 store")
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra's
        from cryptography.hazmat.primitives.serialization.pkcs12 import (  # noqa: PLC0415
            load_pkcs12,
        )
    except ImportError:
        raise Misconfigured(
            f"{what}: a PKCS12 store is read with cryptography: pip install "
            "'horolog[security]', or give PEM files"
        ) from None
    try:
        _require_quick(data, what)
        store = load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        wrong = "the password is wrong" if password else "its password is missing"
        raise Misconfigured(f"{what}: {wrong}, or the store is damaged") from None
    der = serialization.Encoding.DER
    key = None
    if store.key is not None:
        key = store.key.private_bytes(
            der, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    certificates = [*filter(None, [store.cert]), *store.additional_certs]
    return key, [certificate.certificate.public_bytes(der) for certificate in certificates]
