"""Kafka's wire protocol: supported APIs, framing, and the bodies of requests and responses.

No I/O and no clock.

api                 the supported APIs and versions
frame               lengths and headers
codec               any message of any version: `reader`, `writer`, by `schema`
declarations        what kio declares of messages, which `schema` is made from
older_versions      versions that kio lacks
requests, responses the fields of both, whatever the version
produce, fetch, list_offsets, single_partition    what is hot, by hand
questions           horolog's own (docs/wire.md); `features` announces them
careful_reader      the field and byte of an error, once the fast reader has failed
"""
