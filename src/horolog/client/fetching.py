"""Fetch requests, and the parsing of their responses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from horolog.buffers import Buffer
from horolog.client.brokers import Brokers
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import refuse
from horolog.client.offsets import require_append_times
from horolog.errors import ErrorCode
from horolog.record.timestamps import AppendTimeStretch
from horolog.record.transactions import AbortedTransaction
from horolog.wire.api import ApiKey
from horolog.wire.features import SEEN_TIME, UNKNOWN_TIME, WITH_APPEND_TIMES, WITH_SEEN_TIMES

_FIRST_WITH_TOPIC_IDS: Final = 13  # of produce and of fetch


class Fetched(NamedTuple):
    """Result of a fetch: whole batches.

    The first may start before the requested offset.

    The last may be cut short by a broker that is not ours. `aborted` is for committed reads.
    """

    records: bytes | memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction]
    append_times: Sequence[AppendTimeStretch] = ()
    """Append times of the records from the requested offset on, and seen times, if requested."""
    unended: Sequence[AbortedTransaction] = ()
    """Transactions without a marker, in reads with append times that are not of committed records.
    The first offset of a transaction that counts as committed is given as -1 - offset."""


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """Fetch of one partition, with the arguments of `Client.fetch`."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 4 << 20
    max_wait_ms: int = 500
    min_bytes: int = 1
    read_committed: bool = False
    with_append_times: bool = False
    with_seen_times: bool = False

    def prepare(self, brokers: Brokers, deadline: Deadline) -> tuple[Link, int, Mapping[str, Any]]:
        """Return the leader, the version and the request.

        Raises:
            RequestRefused: there is no such partition, or it has no leader.
            NoAnswer: no broker answers.
        """
        known = brokers.topic(self.topic, deadline)
        leader = brokers.leader(self.topic, self.partition, deadline)
        level = int(self.read_committed)
        if self.with_append_times:
            require_append_times(leader)
            level += append_times_level(leader, seen=self.with_seen_times)
        fields = to_fetch(self.partition, self.offset, self.max_bytes)
        request = fetch_request(
            [{"topic": self.topic, "topic_id": known.topic_id, "partitions": [fields]}],
            max_bytes=self.max_bytes,
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            level=level,
        )
        version = leader.version(ApiKey.FETCH, highest=highest_for(known.topic_id))
        return leader, version, request

    def read(self, body: Any) -> Fetched:
        """Read the answer.

        Raises:
            RequestRefused: that it was refused.
        """
        what = f"fetch of {self.topic}-{self.partition} from offset {self.offset}"
        refuse(getattr(body, "error_code", 0), what)
        it = only_partition(body.responses, what)
        refuse(it.error_code, what)
        return fetched(it, with_times=self.with_append_times, committed=self.read_committed)


def append_times_level(leader: Link, *, seen: bool) -> int:
    """Return the addition to the isolation level that requests append times, and seen ones.

    Seen times are requested only from brokers that announce them.
    """
    return WITH_APPEND_TIMES + WITH_SEEN_TIMES * (seen and SEEN_TIME in leader.features)


def to_fetch(partition: int, offset: int, max_bytes: int) -> dict[str, int]:
    """Return one partition of a fetch request."""
    return {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }


def fetch_request(
    topics: Sequence[Mapping[str, Any]],
    *,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    level: int,
) -> dict[str, Any]:
    """Return a fetch request without a session."""
    return {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": level,
        "session_id": 0,
        "session_epoch": -1,  # no session: each fetch names all partitions
        "topics": topics,
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def highest_for(topic_id: object) -> int:
    """Return the highest usable version; without a topic id, the last version with names."""
    return 0x7FFF if topic_id is not None else _FIRST_WITH_TOPIC_IDS - 1


def only_partition(topics: Sequence[Any], what: str) -> Any:
    """Return the partition of a response about one partition.

    Raises:
        RequestRefused: the answer does not mention it.
    """
    for topic in topics:
        for it in topic.partitions:
            return it
    return refuse(ErrorCode.unknown_server_error, what, "the answer does not mention it")


def fetched(it: Any, *, with_times: bool, committed: bool) -> Fetched:
    """Read the response about one partition, with append times if they were requested."""
    listed = getattr(it, "aborted_transactions", None) or ()  # from v4 on, as is what is stable
    aborted = [AbortedTransaction(it.producer_id, it.first_offset) for it in listed]
    answer = Fetched(
        records=b"" if it.records is None else it.records,
        high_watermark=it.high_watermark,
        last_stable_offset=getattr(it, "last_stable_offset", -1),
        log_start_offset=getattr(it, "log_start_offset", -1),
        aborted=aborted,
    )
    if not with_times:
        return answer
    transactions, times = _with_append_times(aborted)
    if committed:
        return answer._replace(aborted=transactions, append_times=times)
    return answer._replace(aborted=[], append_times=times, unended=transactions)


def fetched_later(
    records: Buffer,
    offsets: Sequence[int],
    listed: Sequence[tuple[int, int]],
    *,
    with_times: bool,
) -> Fetched:
    """Return what a replica was answered about one partition: see `fetched`.

    Args:
        offsets: high watermark, last stable offset and log start.
        listed: producer id and first offset of each aborted transaction.
    """
    high_watermark, last_stable_offset, log_start_offset = offsets
    aborted: Sequence[AbortedTransaction] = [AbortedTransaction(*it) for it in listed]
    times: Sequence[AppendTimeStretch] = ()
    unended: Sequence[AbortedTransaction] = ()
    if with_times:
        unended, times = _with_append_times(aborted)
        aborted = ()
    return Fetched(
        cast("bytes | memoryview", records),
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        times,
        unended,
    )


def _with_append_times(
    aborted: Sequence[AbortedTransaction],
) -> tuple[Sequence[AbortedTransaction], Sequence[AppendTimeStretch]]:
    """Return the transactions, and the append times that follow them in an answer.

    The list has the number of aborted transactions, these, and then the append times.
    """
    count = aborted[0].producer_id if aborted else 0
    times = [
        AppendTimeStretch(
            offset if offset >= 0 else -1 - offset,
            None if ms == UNKNOWN_TIME else ms,
            is_seen=offset < 0,
        )
        for ms, offset, _ in aborted[1 + count :]
    ]
    return aborted[1 : 1 + count], times
