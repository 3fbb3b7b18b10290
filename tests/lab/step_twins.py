"""Requests of one consumer group, sent to two brokers: the answers and the records are alike.

Members of the classic protocol have the ids that their broker gave them, which stand for their
labels here. Runs of records of one type are compared as sets: Kafka writes them in the order of its
hash tables.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from random import Random
from typing import Any, Final
from uuid import UUID

from heartbeat_twins import HeartbeatTwins, Twin
from patience import PATIENCE_S
from raw_connection import fetch_fields

from horolog.groups import read_assignment, read_subscription
from horolog.record import iter_headers, read_records
from horolog.schemas.group_records import (
    CurrentValue,
    GroupEpochValue,
    GroupRecordKey,
    MemberMetadataValue,
    PatternValue,
    TargetEpochValue,
    TargetValue,
    read_value,
)
from horolog.schemas.offsets import GroupKey, OffsetKey, read_group, read_key
from horolog.wire import ApiKey

_OFFSETS: Final = "__consumer_offsets"
_QUIET_S: Final = 0.2
_OF_GROUP: Final = ("Group", "GroupEpoch", "TargetEpoch", "PartitionMetadata")
_NONE: Final = b"\xff\xff\xff\xff"
Batches = list[list[Any]]


class StepTwins(HeartbeatTwins):
    """Two brokers whose groups get the same requests; `written` compares what they store."""

    def __init__(self, ours: str, theirs: str, prefix: str) -> None:
        super().__init__(ours, theirs, prefix, Random(0))
        self.ids: list[dict[str, str]] = [{}, {}]
        """Ids of classic members by their labels, of both sides."""
        self._at = [0, 0]

    def begin(self, **topics: int) -> None:
        """Make topics, and leave what is written so far behind."""
        for name, partitions in topics.items():
            self.create(name, partitions)
        self.settle()
        self.skip()

    def ids_of(self, twin: Twin) -> dict[str, str]:
        return self.ids[self.both.index(twin)]

    # --- members of the classic protocol --------------------------------------------------

    def classic_join(
        self,
        label: str,
        topics: Sequence[str],
        *,
        owned: dict[str, list[int]] | None = None,
        generation: int = -1,
        protocols: Sequence[str] = ("range",),
        raw: bytes | None = None,
        **said: Any,
    ) -> Any:
        """JoinGroup, for the id as well if there is none: error, generation, leader, protocol."""
        metadata = self.subscription(topics, owned or {}, generation) if raw is None else raw

        def ask(twin: Twin) -> Any:
            ids = self.ids_of(twin)
            asked = {
                "group_id": self.prefix,
                "session_timeout_ms": 600_000,
                "rebalance_timeout_ms": 600_000,
                "protocol_type": "consumer",
                "protocols": [{"name": it, "metadata": metadata} for it in protocols],
                "member_id": ids.get(label, ""),
                **said,
            }
            answer = twin.connection.ask(ApiKey.JOIN_GROUP, 9, **asked)
            if answer.error_code == 79:
                asked["member_id"] = answer.member_id
                answer = twin.connection.ask(ApiKey.JOIN_GROUP, 9, **asked)
            if not answer.error_code:
                ids[label] = answer.member_id
            leader = self.label(twin, answer.leader or "")
            return (
                *(answer.error_code, answer.generation_id, leader),
                *(answer.protocol_type, answer.protocol_name, len(answer.members)),
            )

        what = f"{label} joins {topics} owned={owned} e{generation} {protocols} {said}"
        return self.alike(what, ask)

    def sync(
        self,
        label: str,
        generation: int,
        assigned: dict[str, dict[str, list[int]]] | None = None,
        *,
        raw: bytes | None = None,
        **said: Any,
    ) -> Any:
        """SyncGroup: error, and the partitions by topic.

        Args:
            assigned: partitions of each member, from the leader.
            raw: what it gives itself instead, as bytes.
        """

        def ask(twin: Twin) -> Any:
            ids = self.ids_of(twin)
            assignments = [
                {"member_id": ids[it], "assignment": self.assignment(of)}
                for it, of in (assigned or {}).items()
            ]
            if raw is not None:
                assignments = [{"member_id": ids[label], "assignment": raw}]
            answer = twin.connection.ask(
                ApiKey.SYNC_GROUP,
                5,
                **{
                    "group_id": self.prefix,
                    "generation_id": generation,
                    "member_id": ids.get(label, label),
                    "protocol_type": "consumer",
                    "protocol_name": "range",
                    "assignments": assignments,
                    **said,
                },
            )
            return answer.error_code, self._given(bytes(answer.assignment))

        return self.alike(f"{label} syncs e{generation} {said}", ask)

    def classic_beat(self, label: str, generation: int, **said: Any) -> Any:
        def ask(twin: Twin) -> Any:
            asked = {
                "group_id": self.prefix,
                "generation_id": generation,
                "member_id": self.ids_of(twin).get(label, label),
                **said,
            }
            return twin.connection.ask(ApiKey.HEARTBEAT, 4, **asked).error_code

        return self.alike(f"{label} beats (classic) e{generation}", ask)

    def classic_leave(self, *labels: str, **said: Any) -> Any:
        def ask(twin: Twin) -> Any:
            ids = self.ids_of(twin)
            members = [{"member_id": ids.get(it, it), **said} for it in labels]
            answer = twin.connection.ask(
                ApiKey.LEAVE_GROUP, 5, group_id=self.prefix, members=members
            )
            return answer.error_code, [it.error_code for it in answer.members]

        return self.alike(f"{labels} leave (classic)", ask)

    def subscription(
        self, topics: Sequence[str], owned: dict[str, list[int]], generation: int
    ) -> bytes:
        """What a member wants and has, in version 2: without user data."""
        wanted = b"".join(map(self._text, topics))
        parts = [b"\0\2", _i32(len(topics)), wanted, _NONE, self._partitions(owned)]
        return b"".join([*parts, _i32(generation)])

    def assignment(self, of: dict[str, list[int]]) -> bytes:
        """What a leader gives a member, without user data."""
        return b"\0\1" + self._partitions(of) + _NONE

    def _partitions(self, of: dict[str, list[int]]) -> bytes:
        parts = [_i32(len(of))]
        for name, partitions in of.items():
            parts += [self._text(name), _i32(len(partitions)), *map(_i32, partitions)]
        return b"".join(parts)

    def _text(self, name: str) -> bytes:
        topic = (self.prefix + name).encode()
        return len(topic).to_bytes(2, "big") + topic

    def _given(self, data: bytes) -> Any:
        if len(data) < 6:
            return data
        topics = read_assignment(data).topics
        found = {it.topic.removeprefix(self.prefix): sorted(it.partitions) for it in topics}
        return int.from_bytes(data[:2], "big"), dict(sorted(found.items()))

    def label(self, twin: Twin, member_id: str) -> str:
        labels = {of: label for label, of in self.ids_of(twin).items()}
        return labels.get(member_id, member_id)

    # --- records --------------------------------------------------------------------------

    def written(self, until: str = "", *, only_last: bool = False) -> Batches:
        """The batches of records that both have written since the last time.

        Args:
            until: type of a record that is written beside an answer, to be waited for; it may be
                in a batch with those of the answer.
            only_last: compare what the records come to, where a Kafka writes what it removes in
                the same batch.
        """
        ours, theirs = (self._until(side, until) for side in (0, 1))
        if until or only_last:
            ours, theirs = ([[it for batch in of for it in batch]] for of in (ours, theirs))
        if only_last:
            ours, theirs = ([_last(of[0])] for of in (ours, theirs))
        assert ours == theirs, "\n".join([*self.log, *_compared(ours, theirs)])
        return ours

    def skip(self) -> None:
        """Leave what is written so far behind."""
        for side in (0, 1):
            list(self._batches(side))

    def _until(self, side: int, kind: str) -> Batches:
        batches: Batches = []
        until = time.monotonic() + PATIENCE_S
        while True:
            batches += self._batches(side)
            names = [record[0] for batch in batches for record in batch]
            if not kind or kind in names or time.monotonic() > until:
                return batches
            time.sleep(_QUIET_S)

    def _batches(self, side: int) -> Iterator[list[Any]]:
        twin = self.both[side]
        while True:
            asked = fetch_fields(_OFFSETS, {0: self._at[side]}, max_wait_ms=0, isolation_level=0)
            (topic,) = twin.connection.ask(ApiKey.FETCH, 12, **asked).responses
            data = bytes(topic.partitions[0].records or b"")
            headers = list(iter_headers(data))
            if not headers:
                return
            for position, header in headers:
                self._at[side] = header.last_offset + 1
                records = [
                    self._plain(twin, record.key, record.value)
                    for record in read_records(data[position : position + header.size])
                    if record.key is not None
                ]
                of_group = [it for it in records if it is not None]
                if of_group:
                    yield [
                        record
                        for _, run in groupby(of_group, key=lambda it: it[0])
                        for record in sorted(run, key=repr)
                    ]

    def _plain(self, twin: Twin, key: bytes, value: bytes | None) -> Any:
        """A record of this group without what may differ: ids, times, hashes."""
        read = read_key(key)
        if read is None or getattr(read, "group", None) != self.prefix:
            return None
        kind = type(read).__name__.removesuffix("Key")
        if isinstance(read, OffsetKey):
            return kind, read.topic.removeprefix(self.prefix), read.partition, value is not None
        who = [self.label(twin, str(it)) for it in read[1:]]
        if value is None:
            return (kind, *who, None)
        if isinstance(read, GroupKey):
            of = read_group(value)
            members = [
                (
                    *(self.label(twin, it.member_id), it.instance_id, it.client_host),
                    *(it.rebalance_timeout_ms, it.session_timeout_ms, self._given(it.assignment)),
                    self._subscribed(it.subscription),
                )
                for it in of.members
            ]
            its = (of.protocol_type, of.generation, of.protocol, of.leader is not None)
            return (kind, *its, sorted(members))
        return (kind, *who, self._plain_value(twin, read, value))

    def _plain_value(self, twin: Twin, key: GroupRecordKey, data: bytes) -> Any:
        match read_value(key, data):
            case GroupEpochValue(epoch, metadata_hash):
                return epoch, metadata_hash != 0
            case TargetEpochValue(epoch, timestamp_ms):
                return epoch, timestamp_ms > 0
            case TargetValue(topics):
                return sorted((self._topic(twin, it), sorted(of)) for it, of in topics if of)
            case CurrentValue() as current:
                parts = [
                    sorted(
                        (
                            self._topic(twin, it.topic_id),
                            sorted(zip(it.partitions, it.epochs or (), strict=False)),
                        )
                        for it in of
                    )
                    for of in (current.assigned, current.pending)
                ]
                return (*current[:3], *parts)
            case PatternValue(topics, _, timestamp_ms):
                names = sorted(it.removeprefix(self.prefix) for it in topics)
                return names, timestamp_ms > 0
            case MemberMetadataValue() as member:
                names = sorted(it.removeprefix(self.prefix) for it in member.topics)
                classic = member.classic and (
                    member.classic.session_timeout_ms,
                    [(name, self._subscribed(it)) for name, it in member.classic.protocols],
                )
                return (*member[:4], names, *member[5:8], classic)
            case other:
                return other

    def _subscribed(self, data: bytes) -> Any:
        return read_subscription(data) if len(data) > 2 else data

    def _topic(self, twin: Twin, topic_id: UUID) -> str:
        return twin.names[topic_id]


def _last(records: list[Any]) -> list[Any]:
    """The records that are not written again, or removed, after them."""
    last = {record[:2] if record[0] not in _OF_GROUP else record[:1]: record for record in records}
    return sorted((it for it in last.values() if it[-1] is not None), key=repr)


def _i32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _compared(ours: Batches, theirs: Batches) -> Iterator[str]:
    for name, batches in (("ours", ours), ("theirs", theirs)):
        yield name
        for batch in batches:
            yield "  --"
            yield from (f"  {record}" for record in batch)
