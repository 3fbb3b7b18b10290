"""Certificates and private keys as PEM, whatever store they come from.

A store of type JKS or PKCS12 is recognised by its first bytes, as Java's own "JKS" provider does
since 9: Kafka's default type JKS opens both.
"""

import base64
import re
import textwrap
from typing import Final, NamedTuple

from horolog.client.security.jks import JKS_MAGIC, read_jks
from horolog.client.security.settings import Hidden, Security
from horolog.errors import Misconfigured

__all__ = ["StoredIdentity", "identity_of", "trusted_of"]

_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"


class StoredIdentity(NamedTuple):
    """A private key with its certificate chain, in PEM, and the password of an encrypted key."""

    pem: str
    password: str | None

    def __repr__(self) -> str:
        return "Identity([hidden])"


def trusted_of(security: Security) -> str | None:
    """The certificates that the settings trust, in PEM; None for those of the system.

    Raises:
        Misconfigured: the store cannot be read or holds no certificate.
    """
    if inline := security.get("ssl.truststore.certificates"):
        return _lines(inline)
    location = security.get("ssl.truststore.location")
    if location is None:
        return None
    what = f"ssl.truststore.location={location}"
    data = _read(location, what)
    if (security.get("ssl.truststore.type") or "JKS").upper() == "PEM":
        return _text(data, what)
    password = security.get("ssl.truststore.password")
    if data.startswith(JKS_MAGIC):
        found = [_pem(each) for each in read_jks(data, what, password, None).trusted]
    else:
        _, found = _read_pkcs12(data, what, password)
    if not found:
        raise Misconfigured(f"{what}: it holds no trusted certificate")
    return "".join(found)


def identity_of(security: Security) -> StoredIdentity | None:
    """The key and certificates with which this client authenticates; None without any.

    Raises:
        Misconfigured: the store cannot be read or holds no private key.
    """
    key_password = security.get("ssl.key.password")
    if key := security.get("ssl.keystore.key"):
        chain = security.get("ssl.keystore.certificate.chain") or ""
        return StoredIdentity(Hidden(_lines(f"{key}\n{chain}")), key_password)
    location = security.get("ssl.keystore.location")
    if location is None:
        return None
    what = f"ssl.keystore.location={location}"
    data = _read(location, what)
    if (security.get("ssl.keystore.type") or "JKS").upper() == "PEM":
        return StoredIdentity(Hidden(_text(data, what)), key_password)
    password = security.get("ssl.keystore.password")
    if data.startswith(JKS_MAGIC):
        keys = read_jks(data, what, password, key_password or password or "").keys
        if not keys:
            raise Misconfigured(f"{what}: it holds no private key")
        der, certificates = keys[0]
        parts = [_pem(der, "PRIVATE KEY"), *map(_pem, certificates)]
    else:
        private_key, chain_parts = _read_pkcs12(data, what, password)
        if private_key is None:
            raise Misconfigured(f"{what}: it holds no private key")
        parts = [private_key, *chain_parts]
    return StoredIdentity(Hidden("".join(parts)), None)


def _read(location: str, what: str) -> bytes:
    try:
        with open(location, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Misconfigured(f"{what}: {why}") from None


def _text(data: bytes, what: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if "-----BEGIN " not in text:
        raise Misconfigured(f"{what}: it is no PEM text; is its type JKS or PKCS12?")
    return text


def _lines(text: str) -> str:
    """PEM whose lines were joined, as in a properties file or an option, in lines again."""

    def block(match: re.Match[str]) -> str:
        kind, body = match.groups()
        if ":" in body:  # headers of an old encrypted key: their lines have a meaning
            return match[0] + "\n"
        body = "\n".join(textwrap.wrap(re.sub(r"\s|\\n", "", body), 64))
        return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n"

    blocks = [block(match) for match in _PEM_BLOCK.finditer(text)]
    return "".join(blocks) or text


def _pem(der: bytes, kind: str = "CERTIFICATE") -> str:
    body = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n"


def _read_pkcs12(data: bytes, what: str, password: str | None) -> tuple[str | None, list[str]]:
    """The private key, if there is one, and all certificates, its own first; in PEM."""
    if data.startswith(_JCEKS_MAGIC):
        raise Misconfigured(
            f"{what}: stores of type JCEKS are not supported; supported are JKS, PKCS12 and PEM"
        )
    if not data.startswith(b"\x30"):
        raise Misconfigured(f"{what}: it is neither a JKS nor a PKCS12 store")
    try:
        from horolog.client.security.pkcs12 import read_pkcs12  # noqa: PLC0415 - an extra's
    except ImportError:
        raise Misconfigured(
            f"{what}: a PKCS12 store is read with cryptography: pip install "
            "'horolog[security]', or give PEM files"
        ) from None
    try:
        key, certificates = read_pkcs12(data, password)
    except ValueError:
        raise Misconfigured(f"{what}: the password is wrong, or the store is damaged") from None
    return None if key is None else _pem(key, "PRIVATE KEY"), [
        _pem(certificate) for certificate in certificates
    ]
