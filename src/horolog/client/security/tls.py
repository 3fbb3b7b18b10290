"""TLS of a connection: its context, and explanations of failures."""

import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from horolog.client.security.settings import Security
from horolog.client.security.stores import StoredIdentity, identity_of, trusted_of
from horolog.errors import Misconfigured

_VERSIONS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}


class Tls:
    """TLS for all connections of one client."""

    def __init__(self, security: Security) -> None:
        """Create the TLS context from the settings and stores.

        Raises:
            Misconfigured: a store or a setting cannot be used; names the setting.
        """
        self._context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version, context.maximum_version = _versions(security)
        algorithm = dict(security.settings).get("ssl.endpoint.identification.algorithm", "https")
        context.check_hostname = bool(algorithm)
        context.verify_mode = ssl.CERT_REQUIRED
        # Java trusts each certificate of a trust store by itself, a broker's own included.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        trusted = trusted_of(security)
        if trusted is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(cadata=trusted)
            except (ssl.SSLError, ValueError):
                name = "certificates" if security.get("ssl.truststore.certificates") else "location"
                raise Misconfigured(f"ssl.truststore.{name} holds no certificate in PEM") from None
        identity = identity_of(security)
        if identity is not None:
            _load(context, identity)

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """Return the socket after a handshake within its timeout.

        Raises:
            OSError: the handshake failed; `refusal` says whether for good.
            ValueError: the host cannot be the name of a server.
        """
        return self._context.wrap_socket(sock, server_hostname=host)

    @staticmethod
    def would_block(error: OSError) -> bool:
        """Return True if a read failed because no bytes have arrived yet."""
        return isinstance(error, ssl.SSLWantReadError)

    @staticmethod
    def refusal(error: Exception, host: str) -> str | None:
        """Return an explanation of a failed handshake or an alert; None if a retry may succeed."""
        if not isinstance(error, ssl.SSLError):
            return None
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message.rstrip(".")
            if error.verify_code in {62, 64}:  # X509_V_ERR_HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH
                return (
                    f"its certificate is not for {host} ({why}); connect by a name in it, or set "
                    "ssl.endpoint.identification.algorithm to nothing"
                )
            return f"its certificate is not trusted ({why}): see ssl.truststore.location"
        reason = (error.reason or "").replace("_", " ").lower()
        if reason in {"wrong version number", "record layer failure", "packet length too long"}:
            return "it does not speak TLS; is it a plaintext listener?"
        if "alert" in reason and ("certificate" in reason or "handshake failure" in reason):
            return (
                f"it refused the handshake ({reason}); does it require a certificate of this "
                "client (ssl.keystore.location), and trust it?"
            )
        if "alert" in reason or "unsupported protocol" in reason:
            return f"it refused the handshake ({reason})"
        return None


def _versions(security: Security) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
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


def _load(context: ssl.SSLContext, identity: StoredIdentity) -> None:
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
