"""Contexts of TLS (`ssl.SSLContext`) from Kafka's settings.

Java's names of cipher suites are translated for TLS 1.2. OpenSSL gives Python no choice among those
of TLS 1.3, so that a list has all three of them, or TLS 1.3 is not enabled.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from horolog.errors import Misconfigured
from horolog.security.stores import (
    StoredIdentity,
    TlsSettings,
    check_stores,
    identity_of,
    trusted_of,
)

__all__ = ["ServerTls", "client_tls", "endpoint_tls", "server_tls"]

_VERSIONS: Final = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_OF_TLS_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_SUITE: Final = re.compile(
    r"TLS_(?P<exchange>RSA|DHE_RSA|ECDHE_RSA|ECDHE_ECDSA)_WITH_"
    r"(?P<cipher>AES_\d+|CHACHA20_POLY1305)_(?P<mode>(?:CBC_|GCM_)?)(?P<digest>SHA\d*)"
)


class ServerTls(NamedTuple):
    """Context of a broker's listener, and the broker's certificate in DER."""

    context: ssl.SSLContext
    certificate: bytes


def server_tls(settings: Mapping[str, str]) -> ServerTls:
    """Return what a broker's listener speaks TLS with; reads files.

    Raises:
        Misconfigured: a store or a setting cannot be used; names the setting and no secret.
    """
    check_stores(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = _versions(settings)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _choose_suites(context, settings.get("ssl.cipher.suites", ""))
    identity = identity_of(settings)
    if identity is None:
        raise Misconfigured(
            "it has no key and certificate: give ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain with ssl.keystore.type=PEM"
        )
    _load_identity(context, identity)
    context.verify_mode = _CLIENT_AUTH[settings.get("ssl.client.auth", "none").lower()]
    # Read where no client is asked, too: a store that is named has to be usable.
    if context.verify_mode is not ssl.CERT_NONE or _names_trusted(settings):
        _load_trusted(context, settings)
    own = _CERTIFICATE.search(identity.pem)
    if own is None:
        raise Misconfigured("the key store has no certificate that begins with BEGIN CERTIFICATE")
    return ServerTls(context, ssl.PEM_cert_to_DER_cert(own[0]))


def _names_trusted(settings: Mapping[str, str]) -> bool:
    names = ("ssl.truststore.location", "ssl.truststore.certificates")
    return any(settings.get(name) for name in names)


def _choose_suites(context: ssl.SSLContext, text: str) -> None:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        return
    missing = sorted(_OF_TLS_1_3.difference(names))
    if missing and context.maximum_version is ssl.TLSVersion.TLSv1_3:
        raise Misconfigured(
            f"ssl.cipher.suites leaves out {', '.join(missing)}: among the suites of TLS 1.3 none "
            "can be left out here; name all three, or enable TLSv1.2 alone with "
            "ssl.enabled.protocols"
        )
    older = [_openssl_name(name) for name in names if name not in _OF_TLS_1_3]
    if older:
        context.set_ciphers(":".join(older))
    elif context.maximum_version is ssl.TLSVersion.TLSv1_3:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    else:
        raise Misconfigured(f"ssl.cipher.suites={text} has no suite of TLS 1.2, which is enabled")


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2."""
    if match := _SUITE.fullmatch(name):
        exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
        if match["cipher"].startswith("AES_"):
            mode = "GCM-" if match["mode"] == "GCM_" else ""
            openssl = f"{exchange}{match['cipher'].replace('_', '')}-{mode}{match['digest']}"
        else:
            openssl = f"{exchange}{match['cipher'].replace('_', '-')}"
        tried = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            tried.set_ciphers(openssl)
        except ssl.SSLError:
            pass
        else:
            return openssl
    raise Misconfigured(
        f"ssl.cipher.suites names {name}, which the system's OpenSSL does not have; names are "
        "Java's, as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    )


def client_tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Return what a client speaks TLS with; reads files.

    Raises:
        Misconfigured: a store or a setting cannot be used; names the setting and no secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = _versions(settings)
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    context.check_hostname = bool(algorithm)
    context.verify_mode = ssl.CERT_REQUIRED
    _load_trusted(context, settings)
    identity = identity_of(settings)
    if identity is not None:
        _load_identity(context, identity)
    return context


def endpoint_tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return what an identity provider is asked with, by the options `ssl.*` of a login module.

    None without such options: the system's authorities are trusted.

    Raises:
        Misconfigured: a store or an option cannot be used.
    """
    settings = {name: value for name, value in options.items() if name.startswith("ssl.")}
    check_stores(settings)
    return client_tls(settings) if settings else None


def _versions(security: TlsSettings) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """Return the lowest and the highest version of TLS.

    Raises:
        Misconfigured: one that is enabled is not supported, or none is left.
    """
    text = security.get("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3"
    names = [part.strip() for part in text.split(",") if part.strip()]
    protocol = security.get("ssl.protocol") or "TLSv1.3"
    if protocol.upper() not in {"TLS", *_VERSIONS}:
        raise Misconfigured(f"ssl.protocol={protocol}: supported are TLSv1.2 and TLSv1.3")
    highest = _VERSIONS.get(protocol.upper(), ssl.TLSVersion.TLSv1_3)
    chosen = []
    for name in names:
        version = _VERSIONS.get(name.upper())
        if version is None:
            raise Misconfigured(
                f"ssl.enabled.protocols={text}: supported are TLSv1.2 and TLSv1.3, not {name}"
            )
        if version <= highest:
            chosen.append(version)
    if not chosen:
        raise Misconfigured(
            f"ssl.enabled.protocols={text} has none that ssl.protocol={protocol} allows"
        )
    return min(chosen), max(chosen)


def _load_trusted(context: ssl.SSLContext, security: TlsSettings) -> None:
    """Trust the certificates of the trust store, or those of the system without one.

    Raises:
        Misconfigured: the store cannot be read or contains no certificate.
    """
    # Java trusts each certificate of a trust store by itself, a broker's own included.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusted = trusted_of(security)
    if trusted is None:
        context.load_default_certs()
        return
    try:
        # Text between the certificates, as names of authorities, may have other characters.
        context.load_verify_locations(cadata=trusted.encode("ascii", "replace").decode())
    except (ssl.SSLError, ValueError):
        name = "certificates" if security.get("ssl.truststore.certificates") else "location"
        raise Misconfigured(f"ssl.truststore.{name} holds no certificate in PEM") from None


def _load_identity(context: ssl.SSLContext, identity: StoredIdentity) -> None:
    """Use a key and its certificates.

    Raises:
        Misconfigured: they are not usable, or the key is encrypted and its password is missing.
    """

    def password() -> str:
        if identity.password is None:
            raise Misconfigured("the private key is encrypted: give ssl.key.password")
        return identity.password

    try:
        with _file_of(identity.pem) as path:
            context.load_cert_chain(path, password=password)
    except (ssl.SSLError, OSError):
        raise Misconfigured(
            "the key store holds no usable private key in PEM with its certificate chain, or "
            "ssl.key.password is wrong"
        ) from None


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """Yield a path from which OpenSSL can read the text, in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("key"), "wb") as file:
            file.write(text.encode())
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile("wb") as file:  # pragma: no cover - macOS; mode 0600
        file.write(text.encode())
        file.flush()
        yield file.name
