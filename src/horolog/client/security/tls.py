"""TLS of a connection: its context, and explanations of failures."""

import socket
import ssl

from horolog.client.security.settings import Security
from horolog.security.contexts import client_tls


class Tls:
    """TLS for all connections of one client."""

    def __init__(self, security: Security) -> None:
        """Create the TLS context from the settings and stores.

        Raises:
            Misconfigured: a store or a setting cannot be used; names the setting.
        """
        self.context = client_tls(dict(security.settings))

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """Return the socket after a handshake within its timeout.

        Raises:
            OSError: the handshake failed; `refusal` says whether for good.
            ValueError: the host cannot be the name of a server.
        """
        return self.context.wrap_socket(sock, server_hostname=host)

    @staticmethod
    def would_block(error: OSError) -> bool:
        """Return True if a read failed because no bytes have arrived yet."""
        return isinstance(error, ssl.SSLWantReadError)

    @staticmethod
    def ended(error: Exception) -> bool:
        """Return True if the broker closed the connection, as a plaintext listener does."""
        return isinstance(error, ConnectionError | ssl.SSLEOFError)

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
