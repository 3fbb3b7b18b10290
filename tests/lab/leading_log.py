"""A leader for replicas, by the rules of Apache Kafka, which may answer wrong."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from scripted_broker import ScriptedBroker
from storelogs import NOW, append, open_dir

from horolog.config import TopicConfig
from horolog.errors import ErrorCode, RequestRefused
from horolog.storage import Log, TopicPartition
from horolog.wire import ApiKey

Answer = dict[str, Any]

QUICK_WAIT_MS = 50
"""Longest wait for records: the high watermark comes with the next answer."""


class LeadingLog:
    """The log of one partition; the test appends to it, and says what is committed."""

    def __init__(
        self, path: Path, topic_id: UUID, *, topic: str = "t", index: int = 0, **config: Any
    ) -> None:
        settings = TopicConfig(**{"retention_ms": -1, **config})
        self.key = TopicPartition(topic, index)
        self.topic_id = topic_id
        self.log_dir = open_dir(path, settings)
        self.log_dir.create(*self.key, topic_id, settings, NOW)
        self.lead(0)

    @property
    def log(self) -> Log:
        return self.log_dir.logs[self.key]

    def lead(self, epoch: int) -> None:
        self.log.become_leader(epoch, is_replicated=True)

    def fill(self, count: int, value: bytes = b"v", **more: Any) -> None:
        """Append batches, of which nothing is committed yet."""
        for number in range(count):
            append(self.log, NOW, value=b"%s %d" % (value, number), **more)

    def commit(self, offset: int = 1 << 60) -> None:
        """Move the high watermark."""
        self.log.move_high_watermark(offset)

    @property
    def stored(self) -> bytes:
        return stored_in(self.log)


def stored_in(log: Log) -> bytes:
    """The bytes of a log's segments, one after the other."""
    return b"".join(Path(it.log.path).read_bytes()[: it.size] for it in log.segments if it.size)


class ReplicasLeader:
    """Broker that leads; `spoil` may change the answer about a partition, or all of a fetch."""

    def __init__(self, *logs: LeadingLog, node_id: int = 1) -> None:
        self.logs = {(each.topic_id, each.key[1]): each for each in logs}
        self.spoil: Callable[[Any, Answer], Any] = lambda asked, answer: answer
        self.spoil_all: Callable[[Any, Answer], Any] = lambda request, answer: answer
        self.changed = threading.Condition()
        self.fetches: list[Any] = []
        self.broker = ScriptedBroker(
            {ApiKey.FETCH: self._fetch, ApiKey.LIST_OFFSETS: self._list_offsets}, node_id=node_id
        )

    def __enter__(self) -> "ReplicasLeader":
        self.broker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.broker.__exit__(*error)

    def notify(self) -> None:
        """Answer fetches that wait."""
        with self.changed:
            self.changed.notify_all()

    def _fetch(self, request: Any) -> Any:
        self.fetches.append(request)
        with self.changed:
            answer = self._answer(request)
            news = [it for topic in answer["responses"] for it in topic["partitions"]]
            if request.max_wait_ms and not any(
                it["error_code"] or it["records"] or "diverging_epoch" in it for it in news
            ):
                self.changed.wait(min(request.max_wait_ms, QUICK_WAIT_MS) / 1000)
                answer = self._answer(request)
        return self.spoil_all(request, answer)

    def _answer(self, request: Any) -> Answer:
        responses = []
        for topic in request.topics:
            parts = [
                self.spoil(asked, self._about(topic.topic_id, asked)) for asked in topic.partitions
            ]
            responses.append({"topic_id": topic.topic_id, "partitions": [p for p in parts if p]})
        return {"responses": responses, "session_id": 0, "error_code": 0}

    def _about(self, topic_id: UUID, asked: Any) -> Answer:
        """The answer about a partition, in the order of Kafka's checks."""
        leading = self.logs.get((topic_id, asked.partition))
        if leading is None:
            return refusal(asked, ErrorCode.unknown_topic_id)
        log, offset, latest = leading.log, asked.fetch_offset, asked.last_fetched_epoch
        if log.is_following:
            return refusal(asked, ErrorCode.not_leader_or_follower)
        try:
            log.check_epoch(asked.current_leader_epoch)
        except RequestRefused as error:
            return refusal(asked, error.code)
        answer = {
            "partition_index": asked.partition,
            "error_code": 0,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.high_watermark,
            "log_start_offset": log.log_start_offset,
            "aborted_transactions": None,
            "records": b"",
        }
        if latest >= 0:
            end = log.end_of_epoch(latest)
            if end is None or offset < log.log_start_offset:
                return refusal(asked, ErrorCode.offset_out_of_range)
            if end.epoch < latest or end.start_offset < offset:
                answer["diverging_epoch"] = {"epoch": end.epoch, "end_offset": end.start_offset}
                return answer
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return refusal(asked, ErrorCode.offset_out_of_range)
        if offset < log.log_end_offset:
            found = log.look(to_end=True).read(offset, asked.partition_max_bytes)
            answer["records"] = bytes(found.read())
        return answer

    def _list_offsets(self, request: Any) -> Answer:
        topics = []
        for topic in request.topics:
            parts = []
            for asked in topic.partitions:
                log = next(
                    each.log
                    for each in self.logs.values()
                    if each.key == (topic.name, asked.partition_index)
                )
                is_start = asked.timestamp == -2
                offset = log.log_start_offset if is_start else log.log_end_offset
                parts.append(
                    self.spoil(
                        asked,
                        {
                            "partition_index": asked.partition_index,
                            "error_code": 0,
                            "timestamp": -1,
                            "offset": offset,
                            "leader_epoch": log.leader_epoch,
                        },
                    )
                )
            topics.append({"name": topic.name, "partitions": parts})
        return {"topics": topics}


def refusal(asked: Any, code: ErrorCode) -> Answer:
    """An answer to a fetch of a partition: the error, and no offsets."""
    return {
        "partition_index": asked.partition,
        "error_code": code,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "records": b"",
    }
