"""Bytes to Kafka's messages and back: which APIs, framing, and the bodies of requests and answers.

No I/O and no clock. `api` says what is answered, `frame` reads headers, `codec` reads and
writes every message from kio's schemas, `produce` and `fetch` pack the two hot answers by hand.
"""
