"""Sockets, frames and back-pressure.

The broker passes its request handler in as `Dispatch`.

server        listeners and connections; `accepting` where the system refuses descriptors
connection_limits   how many connections there may be, and how many a second
connection    requests in, responses out, in order; its states are in `lifecycle`
peer          the client as handlers see it: principal, address, listener, still connected or not
framing       frames as they arrive; large ones in `mappings`
outbox        responses (`reply`); what the page cache has is sent from its file
budget        the memory of all connections together; `stalls` closes who holds it without progress
turns         which connection is served next; `busy_polling` asks once more before it sleeps,
              `joint_sends` wakes clients together
outgoing      requests to another broker, and `responses` to them
tls           handshakes and transports of encrypted connections
http          a page for a browser or Prometheus, on a port of its own

A request or response counts by the memory it takes: a buffer grows with what has arrived,
whatever length the client claims.
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.network.busy_polling import *
    from horolog.network.peer import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "accepting": "Acceptor",
        "budget": "ByteBudget",
        "busy_polling": "BEGIN_AFTER REST BusyPolling worth_polling_s",
        "connection": (
            "IN_FLIGHT_REQUESTS QUICK_BYTES READ_AHEAD_BYTES READ_AHEAD_OF_WAIT_BYTES "
            "ServerConnection Shared"
        ),
        "dispatching": "Hangup",
        "framing": "FIRST_ALLOCATION_BYTES GROWTH PIECE_BYTES SCRATCH_BYTES STEP_BYTES Frames",
        "http": (
            "ANSWERED INCOMPLETE REQUEST_BYTES REQUEST_SECONDS RESPONSE_SECONDS HttpRequest "
            "HttpResponse HttpServer"
        ),
        "joint_sends": "MOST JointSends",
        "lifecycle": "State",
        "mappings": "Mappings",
        "outbox": "MOST_AT_ONCE Outbox",
        "outgoing": "FIRST_PAUSE_S LONGEST_PAUSE_S OutgoingConnection",
        "peer": "ANONYMOUS Peer",
        "reply": "FileSlots Reply SlicedRecords",
        "request_times": "RequestTimes",
        "stalls": "TICK_SECONDS WINDOW_TICKS",
        "tls.contexts": "TlsContexts",
        "tls.handshakes": "Handshake Handshakes TlsSession",
        "tls.transport": "READ_BYTES RECEIVED_BYTES RECORDS TlsTransport WRITE_BYTES",
        "turns": "Turns",
    },
)
