"""Sockets, frames and back-pressure; the request handler is passed in as `Dispatch`.

server        listeners and connections; `accepting` where the system refuses descriptors
connection    requests in, responses out, in order; its states are in `lifecycle`
peer          the client as handlers see it: principal, address, listener, still connected or not
framing       frames as they arrive; large ones in `mappings`
outbox        responses; what the page cache has is sent from its file (`file_records`)
budget        the memory of all connections together; `stalls` closes who holds it without progress
turns         which connection is served next; `busy_polling` asks once more before it sleeps,
              `joint_sends` wakes clients together
http          a page for a browser or Prometheus, on a port of its own

A request or response counts by the memory it takes: a buffer grows with what has arrived,
whatever length the client claims.
"""
