"""Kafka's wire protocol: supported APIs, framing, and the bodies of requests and responses.

No I/O and no clock. `api` lists the supported versions, `frame` reads and writes headers, `codec`
decodes and encodes every message from kio's schemas. `produce` and `fetch` encode the two
responses of the hot path by hand.
"""
