"""Requests of a replica, a coordinator and clients to a leader, and the answers in one form.

The same dialogue is held with Apache Kafka and with horolog. The topic `t` has two replicas, the
leader and another one whose requests the dialogue sends; neither is in sync with the other at
first. Leader epochs in the answers are counted from the leader's.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self
from uuid import UUID

from raw_connection import RawConnection, produce_fields

from horolog.record import LogRecord, build_batch, iter_headers
from horolog.wire import ApiKey

NOW_MS = 1_700_000_000_000
TOPIC = "t"


class AskedLeader(Protocol):
    """A broker that leads the partitions 0 and 1 of a topic."""

    address: str
    node_id: int
    epoch: int
    topic_id: UUID
    replica: int
    replica_epoch: int

    def sync(self) -> None:
        """Let the other replica, which is at the log end, be in sync in partition 0."""
        ...

    def need_two(self) -> None:
        """Set `min.insync.replicas` to 2."""
        ...


def records(count: int = 2, **of_batch: Any) -> bytes:
    return build_batch([LogRecord(NOW_MS, None, b"x") for _ in range(count)], **of_batch)


class Dialogue:
    """One dialogue with a leader."""

    def __init__(self, leader: AskedLeader) -> None:
        self.leader = leader
        self.connection = RawConnection(leader.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.socket.close()

    def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        return self.connection.ask(key, version, **fields)

    def _epoch(self, epoch: int) -> int | None:
        return None if epoch == -1 else epoch - self.leader.epoch

    # --- requests ---------------------------------------------------------------------

    def fetch(
        self,
        offset: int,
        *,
        index: int = 0,
        epoch: int = 0,
        last: int | None = None,
        start: int = 0,
        replica: int | None = None,
        broker_epoch: int | None = None,
        topic_id: UUID | None = None,
        version: int = 18,
    ) -> tuple[object, ...]:
        """The replica's fetch; epochs are counted from the leader's, `last` None is no epoch."""
        leader = self.leader
        partition = {
            "partition": index,
            "current_leader_epoch": leader.epoch + epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": -1 if last is None else leader.epoch + last,
            "log_start_offset": start,
            "partition_max_bytes": 1 << 20,
        }
        state = {
            "replica_id": leader.replica if replica is None else replica,
            "replica_epoch": leader.replica_epoch if broker_epoch is None else broker_epoch,
        }
        fields: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "topics": [{"topic_id": topic_id or leader.topic_id, "partitions": [partition]}],
        }
        fields |= {"replica_state": state} if version > 14 else {"replica_id": state["replica_id"]}
        answer = self.ask(ApiKey.FETCH, version, **fields)
        (topic,) = answer.responses
        (found,) = topic.partitions
        diverging, current = found.diverging_epoch, found.current_leader
        return (
            *(answer.error_code, len(getattr(answer, "node_endpoints", ()))),
            *(found.error_code, found.high_watermark, found.last_stable_offset),
            found.log_start_offset,
            [header.base_offset for _, header in iter_headers(found.records or b"")],
            (self._epoch(diverging.epoch), diverging.end_offset),
            (current.leader_id - leader.node_id if current.leader_id >= 0 else None),
            self._epoch(current.leader_epoch),
        )

    def produce(
        self,
        data: bytes,
        index: int = 0,
        *,
        acks: int = -1,
        timeout_ms: int = 100,
        version: int = 12,
    ) -> tuple[object, ...]:
        fields = {**produce_fields(TOPIC, {index: data}, acks=acks), "timeout_ms": timeout_ms}
        (topic,) = self.ask(ApiKey.PRODUCE, version, **fields).responses
        (found,) = topic.partition_responses
        return found.error_code, found.base_offset, found.log_start_offset

    def look(
        self, timestamp: int, *, replica: int = -1, index: int = 0, epoch: int | None = None
    ) -> tuple[object, ...]:
        partition = {
            "partition_index": index,
            "current_leader_epoch": -1 if epoch is None else self.leader.epoch + epoch,
            "timestamp": timestamp,
        }
        topics = [{"name": TOPIC, "partitions": [partition]}]
        answer = self.ask(ApiKey.LIST_OFFSETS, 9, replica_id=replica, topics=topics)
        (found,) = answer.topics[0].partitions
        return found.error_code, found.offset, self._epoch(found.leader_epoch)

    def end_of_epoch(
        self, epoch: int, *, current: int | None = None, replica: int | None = None
    ) -> tuple[object, ...]:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1 if current is None else self.leader.epoch + current,
            "leader_epoch": self.leader.epoch + epoch,
        }
        answer = self.ask(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            4,
            replica_id=self.leader.replica if replica is None else replica,
            topics=[{"topic": TOPIC, "partitions": [partition]}],
        )
        (found,) = answer.topics[0].partitions
        return found.error_code, self._epoch(found.leader_epoch), found.end_offset

    def delete(self, offset: int, index: int = 0) -> tuple[object, ...]:
        partition = {"partition_index": index, "offset": offset}
        topics = [{"name": TOPIC, "partitions": [partition]}]
        answer = self.ask(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=100)
        (found,) = answer.topics[0].partitions
        return found.error_code, found.low_watermark

    def mark(
        self, producer_epoch: int, coordinator_epoch: int, index: int = 0, **more: Any
    ) -> object:
        marker = {
            "producer_id": 7,
            "producer_epoch": producer_epoch,
            "transaction_result": True,
            "topics": [{"name": TOPIC, "partition_indexes": [index]}],
            "coordinator_epoch": coordinator_epoch,
        }
        version = 2 if more else 1
        answer = self.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=[{**marker, **more}])
        return answer.markers[0].topics[0].partitions[0].error_code

    def session(self, session_id: int, epoch: int) -> int:
        state = {
            "replica_id": self.leader.replica,
            "replica_epoch": self.leader.replica_epoch,
        }
        fields = {"session_id": session_id, "session_epoch": epoch, "topics": []}
        answer = self.ask(ApiKey.FETCH, 18, replica_state=state, **fields)
        return int(answer.error_code)

    # --- the dialogue -----------------------------------------------------------------

    def held(self) -> Mapping[str, object]:
        """All answers, by what was asked."""
        said: dict[str, object] = {}
        for parts in (self._first, self._out_of_order, self._in_sync, self._too_few):
            for what, answer in parts():
                assert what not in said
                said[what] = answer
        return said

    def _first(self) -> Iterator[tuple[str, object]]:
        yield "acks=all of a leader alone in sync", self.produce(records())
        yield "acks=1", self.produce(records(), acks=1)
        yield "fetch of an empty replica", self.fetch(0)
        yield "fetch within", self.fetch(2)
        yield "fetch within a batch", self.fetch(3)
        yield "fetch of epoch 0 below", self.fetch(2, last=0)
        for version in (13, 15, 16, 17, 18):
            yield f"fenced in version {version}", self.fetch(0, epoch=-1, version=version)
        yield "epoch above", self.fetch(0, epoch=1)
        yield "of no replica", self.fetch(0, replica=77, broker_epoch=-1)
        yield "of no replica, and fenced", self.fetch(0, replica=77, epoch=-1)
        yield "of no replica, out of range", self.fetch(99, replica=77)
        yield "of the leader", self.fetch(0, replica=self.leader.node_id, broker_epoch=-1)
        yield "of no topic", self.fetch(0, topic_id=UUID(int=77))
        yield "of no partition", self.fetch(0, index=7)

    def _out_of_order(self) -> Iterator[tuple[str, object]]:
        stale = self.leader.replica_epoch - 1
        yield "stale registration", self.fetch(0, broker_epoch=stale)
        yield "newer registration", self.fetch(0, broker_epoch=stale + 2)
        yield "no registration", self.fetch(0, broker_epoch=-1)
        yield "behind the end", self.fetch(99)
        yield "behind the end, stale", self.fetch(99, broker_epoch=stale)
        yield "diverging", self.fetch(5, last=0)
        yield "diverging, stale", self.fetch(5, last=0, broker_epoch=stale)
        yield "unknown last epoch", self.fetch(1, last=5)
        yield "unknown last epoch, behind the end", self.fetch(99, last=5)
        yield "negative offset", self.fetch(-1)
        yield "no session", self.session(12345, 1)

    def _in_sync(self) -> Iterator[tuple[str, object]]:
        yield "at the end", self.fetch(4, last=0)
        self.leader.sync()
        yield "timed out", self.produce(records())
        yield "timed out in version 7", self.produce(records(1), version=7)
        yield "replica below the end", self.fetch(4, last=0)
        for replica in (-1, -2, self.leader.replica, 77):
            name = "replica" if replica == self.leader.replica else str(replica)
            for timestamp in (-1, -2, -4):
                yield f"look of {name} for {timestamp}", self.look(timestamp, replica=replica)
        yield "look of epoch above", self.look(-1, epoch=1)
        yield "look of epoch below", self.look(-1, epoch=-1)
        yield "look without partition", self.look(-1, index=7)
        for epoch in (0, 1, -1):
            yield f"end of epoch {epoch}", self.end_of_epoch(epoch)
            yield f"end of epoch {epoch} for a consumer", self.end_of_epoch(epoch, replica=-1)
        yield "end of epoch, fenced", self.end_of_epoch(0, current=-1)
        yield "end of epoch, too new", self.end_of_epoch(0, current=1)
        batch = records(1, producer_id=9, producer_epoch=0, base_sequence=0)
        yield "idempotent", self.produce(batch)
        yield "repeated", self.produce(batch)
        yield "replica reads on", self.fetch(7, last=0)
        yield "replica is at the end", self.fetch(8, last=0)
        yield "repeated, and replicated", self.produce(batch)
        yield "deletion that waits", self.delete(2)
        yield "fetch before the start", self.fetch(1)
        yield "fetch before the start, with an epoch", self.fetch(1, last=0)
        yield "fetch before the start, unknown epoch", self.fetch(1, last=7)
        yield "replica has deleted", self.fetch(8, last=0, start=2)
        yield "deletion again", self.delete(2)
        yield "deletion behind the high watermark", self.delete(99)
        yield "deletion without partition", self.delete(0, index=7)

    def _too_few(self) -> Iterator[tuple[str, object]]:
        yield "marker", self.mark(0, 3, 1)
        yield "marker of an older coordinator", self.mark(0, 2, 1)
        yield "marker of a newer producer", self.mark(3, 3, 1)
        yield "marker of an older producer", self.mark(2, 3, 1)
        yield "marker of version 2", self.mark(4, 3, 1, transaction_version=2)
        yield "marker without partition", self.mark(0, 3, 7)
        self.leader.need_two()
        yield "too few", self.produce(records(), 1)
        yield "too few in version 7", self.produce(records(), 1, version=7)
        yield "too few, acks=1", self.produce(records(), 1, acks=1)
        yield "not shown", self.look(-1, index=1)
        yield "marker with too few", self.mark(5, 3, 1)
        yield "wrong acks", self.produce(records(), 1, acks=2)
