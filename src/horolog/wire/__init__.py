"""Kafka's wire protocol: supported APIs, framing, and the bodies of requests and responses.

No I/O and no clock.

    api                 supported APIs and versions
    frame               lengths and headers
    codec               any message of any version: `reader`, `writer`, by `schema`
    declarations        kio's declarations of messages, from which `schema` is made
    other_versions      versions that kio lacks
    requests, responses fields of both, whatever the version
    produce, fetch, list_offsets, single_partition, transactions
                        hot requests and answers, by hand
    offset_commit       commits that repeat an earlier one, without decoding
    questions           horolog's own questions (docs/wire.md); `features` announces them
    careful_reader      the field and byte of an error, once the fast reader has failed
"""

from typing import TYPE_CHECKING

from horolog.extras import lazy_names

if TYPE_CHECKING:
    from horolog.wire.acl import *
    from horolog.wire.api import *
    from horolog.wire.codec import *
    from horolog.wire.frame import *
    from horolog.wire.malformed import *
    from horolog.wire.questions import *
    from horolog.wire.schema import *

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "acl": "AclOperation AclPattern AclPermission AclResource",
        "api": "OF_CONTROLLERS SUPPORTED ApiKey Versions is_flexible",
        "careful_reader": "FIELDS_AT_A_TIME MAX_FIELDS read_carefully",
        "codec": (
            "Unwritable decode_request decode_response encode_request encode_response "
            "request_pieces"
        ),
        "config_resources": "ResourceType",
        "features": (
            "APPEND_TIME BY_APPEND_TIME BY_CREATE_TIME FEATURES REPLICATION SEEN_TIME "
            "WITH_APPEND_TIMES"
        ),
        "fetch": "DivergingEpoch FetchedAbort FetchedPartition FetchedTopic encode_fetch_response",
        "frame": (
            "LENGTH_BYTES RequestHeader frame_length parse_request_header "
            "parse_response_header request_prefix response_prefix unsupported_api_versions"
        ),
        "leaders": "CurrentLeader NodeEndpoint",
        "malformed": "MalformedRequest MalformedResponse",
        "offset_commit": "CommitForm",
        "other_versions": "CLOCK_TAG NEWER NO_CLOCK OLDER OWN_TAGS",
        "packing": "uvarint",
        "produce": "ProducedPartition ProducedTopic encode_produce_response",
        "questions": (
            "ACTIONS APPEND_TIMES_AHEAD FOLLOWING GROUP_LAG HEALTH HISTORY_GROUP "
            "HISTORY_TOPIC LOOKUP_WAY QUESTIONS RETENTION RETENTION_UNREAD STAMP_CLOCK_RESET "
            "TIMES TIME_BLOCKS TIME_RANGES Action AskGroupLag AskLookup AskRetention AskTimes "
            "AskUnread FollowedEntry FollowedState GroupPartitionLag LagClock PartitionTimes "
            "PromotedEntry Question RangeClock TransactionStart Withdrawn Wrong"
        ),
        "reader": "LARGE_BYTES",
        "schema": "REQUIRED Field Kind Shape load request_view",
        "single_partition": "read_lookup read_produce",
        "transactions": "added_answers ended_answers read_add read_end",
        "writer": "APART_BYTES",
    },
)
