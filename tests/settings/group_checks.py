"""For every broker setting about groups, offsets and producers, the difference it makes."""

from typing import Any

from patience import eventually
from raw_connection import RawConnection
from setting_checks import of_broker
from settings_lab import Lab

from horolog.broker import StateTopic
from horolog.client import CommittedOffset
from horolog.clock import HOUR_MS
from horolog.record import LogRecord, build_batch
from horolog.schemas.offsets import partition_for
from horolog.wire import ApiKey

COORDINATOR_NOT_AVAILABLE = 15
INVALID_SESSION_TIMEOUT = 26
GROUP_MAX_SIZE_REACHED = 81
MEMBER_ID_REQUIRED = 79
OFFSET_METADATA_TOO_LARGE = 12
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
NEVER = "2000000000"
SOON = "30"


# --- groups ---------------------------------------------------------------------------------


def join(
    connection: RawConnection, version: int = 3, session_ms: int = 10_000, metadata: bytes = b""
) -> Any:
    send_join(connection, version, session_ms, metadata)
    return connection.receive()[1]


def send_join(
    connection: RawConnection, version: int = 3, session_ms: int = 10_000, metadata: bytes = b""
) -> None:
    connection.send(
        ApiKey.JOIN_GROUP,
        version,
        group_id="g",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": metadata}],
    )


@of_broker("group.min.session.timeout.ms", {"7000": 0, "7001": INVALID_SESSION_TIMEOUT})
def what_becomes_of_a_session_of_seven_seconds(lab: Lab) -> int:
    with lab.connect() as connection:
        return int(join(connection, session_ms=7_000).error_code)


@of_broker("group.max.session.timeout.ms", {"7000": 0, "6999": INVALID_SESSION_TIMEOUT})
def what_becomes_of_a_session_as_long_as_seven_seconds(lab: Lab) -> int:
    return what_becomes_of_a_session_of_seven_seconds(lab)


@of_broker("group.initial.rebalance.delay.ms", {"0": False, "200000": True})
def whether_a_first_member_waits_for_others(lab: Lab) -> bool:
    with lab.connect() as connection:
        send_join(connection)
        return connection.is_silent(lab.soon_s)


@of_broker("group.max.size", {"1": GROUP_MAX_SIZE_REACHED, "2": MEMBER_ID_REQUIRED})
def what_a_second_member_is_told_at_first(lab: Lab) -> int:
    with lab.connect() as first, lab.connect() as second:
        assert join(first).error_code == 0
        return int(join(second, version=5).error_code)


@of_broker("horolog.group.max.bytes", {"65536": GROUP_MAX_SIZE_REACHED, "131072": 0})
def what_becomes_of_a_member_with_long_metadata(lab: Lab) -> int:
    with lab.connect() as connection:
        return int(join(connection, metadata=bytes(100_000)).error_code)


@of_broker("horolog.groups.max.bytes", {"65536": COORDINATOR_NOT_AVAILABLE, "131072": 0})
def what_becomes_of_a_member_where_all_groups_share_the_room(lab: Lab) -> int:
    return what_becomes_of_a_member_with_long_metadata(lab)


# --- offsets --------------------------------------------------------------------------------


@of_broker("offset.metadata.max.bytes", {"9": 0, "8": OFFSET_METADATA_TOO_LARGE})
def what_becomes_of_an_offset_with_a_note_of_nine_characters(lab: Lab) -> int:
    lab.topic("t")
    offset = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "12345678\u00e9"}
    with lab.connect() as connection:
        answer = connection.ask(
            ApiKey.OFFSET_COMMIT, 7, group_id="g", topics=[{"name": "t", "partitions": [offset]}]
        )
    return int(answer.topics[0].partitions[0].error_code)


@of_broker("offsets.retention.minutes", {"60": False, "61": True})
def whether_an_offset_is_kept_for_an_hour(lab: Lab) -> bool:
    _commit(lab)
    lab.clock.advance(HOUR_MS)
    lab.broker.run(lab.broker.service.background_tasks.expire_offsets())
    return _is_committed(lab)


@of_broker(
    "offsets.retention.check.interval.ms",
    {SOON: False, NEVER: True},
    beside={"offsets.retention.minutes": "1"},
)
def whether_an_expired_offset_is_still_there_soon_after(lab: Lab) -> bool:
    _commit(lab)
    lab.clock.advance(HOUR_MS)
    return not eventually(lambda: not _is_committed(lab), lab.soon_s)


def _commit(lab: Lab) -> None:
    lab.topic("t")
    lab.client.offset_commit("g", {("t", 0): CommittedOffset(5)})


def _is_committed(lab: Lab) -> bool:
    return lab.client.offset_fetch("g", [("t", 0)])["t", 0] is not None


# --- producers ------------------------------------------------------------------------------


@of_broker("producer.id.expiration.ms", {"1000": 0, "1001": OUT_OF_ORDER_SEQUENCE_NUMBER})
def what_becomes_of_a_gap_in_the_sequence_after_a_second(lab: Lab) -> int:
    """Who is forgotten may begin with any number."""
    trial = lab.topic("t")
    trial.put(_numbered(0))
    lab.clock.advance(1_000)
    lab.broker.run(lab.broker.service.background_tasks.expire_producers())
    return trial.refusal(_numbered(7))


@of_broker(
    "producer.id.expiration.check.interval.ms",
    {SOON: True, NEVER: False},
    beside={"producer.id.expiration.ms": "1000"},
)
def whether_a_silent_producer_is_forgotten_by_itself(lab: Lab) -> bool:
    trial = lab.topic("t")
    trial.put(_numbered(0))
    lab.clock.advance(1_000)
    return eventually(lambda: not len(trial.log.producers), lab.soon_s)


def _numbered(sequence: int) -> bytes:
    return build_batch(
        [LogRecord(-1, None, b"v")], producer_id=5, producer_epoch=0, base_sequence=sequence
    )


# --- the topics of coordinators -------------------------------------------------------------


@of_broker("offsets.topic.num.partitions", {"2": 2, "3": 3})
def how_many_partitions_the_topic_of_offsets_is_made_with(lab: Lab) -> int:
    return _made(lab, lab.broker.broker.offsets_topic)


@of_broker("transaction.state.log.num.partitions", {"2": 2, "3": 3})
def how_many_partitions_the_topic_of_transactions_is_made_with(lab: Lab) -> int:
    return _made(lab, lab.broker.broker.transactions_topic)


@of_broker("offsets.topic.segment.bytes", {"70": 3, "1000": 1})
def how_many_segments_three_batches_of_groups_take(lab: Lab) -> int:
    return _segments(lab, lab.broker.broker.offsets_topic)


@of_broker("offsets.topic.compression.codec", {"0": {0}, "3": {3}})
def how_batches_of_groups_are_compressed(lab: Lab) -> set[int]:
    lab.topic("t")
    broker = lab.broker
    for number in range(2):
        committed = {("t", 0): CommittedOffset(number)}
        lab.client.offset_commit("g", committed)
    headers = broker.headers("__consumer_offsets", partition_for("g", 50))
    return {header.codec_number for header in headers}


@of_broker("transaction.state.log.segment.bytes", {"70": 3, "1000": 1})
def how_many_segments_three_batches_of_transactions_take(lab: Lab) -> int:
    return _segments(lab, lab.broker.broker.transactions_topic)


def _made(lab: Lab, topic: StateTopic) -> int:
    lab.broker.run(topic.ready())
    return len([*lab.broker.log_dir.glob(f"{topic.name}-*")])


def _segments(lab: Lab, topic: StateTopic) -> int:
    async def append() -> None:
        await topic.ready()
        for _ in range(3):
            appending = topic.append(0, topic.prepared(0, build_batch([LogRecord(1, b"k", b"")])))
            if appending is not None:
                await appending

    lab.broker.run(append())
    return len(lab.broker.log(topic.name).segments)


@of_broker("horolog.history.ms", {"0": None, "60000": "60000"})
def how_long_each_commit_is_kept(lab: Lab) -> str | None:
    broker = lab.broker.service.broker
    lab.broker.run(broker.offsets_topic.ready())
    return broker.topics.named("__consumer_offsets").overrides.get("min.compaction.lag.ms")
