"""TLS of connections; nothing else of the server learns of it.

contexts     certificates of listeners, loaded anew when they change
handshakes   in threads of their own, so that the event loop does no arithmetic of keys
transport    the event loop's end of an encrypted connection, with asyncio's methods

asyncio has TLS of its own, which holds 256 KiB for each connection from its first byte and does
handshakes on the event loop.
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.network.tls.contexts import *
    from horolog.network.tls.handshakes import *
    from horolog.network.tls.transport import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "contexts": "TlsContexts",
        "handshakes": "Handshake Handshakes TlsSession",
        "transport": "TlsTransport",
    },
)
