"""A source that is followed and says what a test has it say; by itself it says the truth."""

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Self
from uuid import UUID

from scripted_broker import ScriptedBroker

from horolog.record import parse_header
from horolog.wire import AclOperation, ApiKey, Versions

MOST_WAIT_MS = 20

Answer = dict[str, Any]
Tamper = Callable[[str, Answer], Answer]


def as_it_is(topic: str, answer: Answer) -> Answer:
    """No tampering."""
    return answer


class ScriptedTopic:
    """A topic of one partition: its batches, in order of their offsets."""

    def __init__(self, number: int) -> None:
        self.topic_id: UUID | None = UUID(int=number)
        self.batches: list[bytes] = []
        self.start = 0
        self.epoch = 3
        self.epoch_ends: dict[int, tuple[int, int]] = {}

    @property
    def end(self) -> int:
        return parse_header(self.batches[-1]).next_offset if self.batches else 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        """The batches from the one that holds an offset on."""
        later = [each for each in self.batches if parse_header(each).next_offset > offset]
        found = b""
        for each in later:
            if found and len(found) + len(each) > max_bytes:
                break
            found += each
        return found


class ScriptedSource:
    """One broker that leads all topics. `tamper` changes what it answers of a partition."""

    def __init__(
        self,
        *topics: str,
        versions: Mapping[ApiKey, Versions] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.topics = {name: ScriptedTopic(1 + number) for number, name in enumerate(topics)}
        self.tamper: dict[ApiKey, Tamper] = {}
        self.extra: list[Answer] = []  # topics of a fetch answer that nobody asked for
        self.cluster_id = "scripted"
        self.broker = ScriptedBroker(
            {
                ApiKey.METADATA: self._metadata,
                ApiKey.DESCRIBE_CONFIGS: self._configs,
                ApiKey.FETCH: self._fetch,
                ApiKey.LIST_OFFSETS: self._list_offsets,
                ApiKey.OFFSET_FOR_LEADER_EPOCH: self._epoch_ends,
                ApiKey.LIST_GROUPS: {"groups": ()},
                ApiKey.DESCRIBE_ACLS: {"error_code": 54, "error_message": None, "resources": ()},
                ApiKey.DESCRIBE_CLIENT_QUOTAS: {
                    "error_code": 0,
                    "error_message": None,
                    "entries": (),
                },
                ApiKey.DESCRIBE_CLUSTER: {
                    "error_code": 0,
                    "cluster_id": "scripted",
                    "controller_id": 1,
                    "cluster_authorized_operations": 1 << AclOperation.DESCRIBE,
                    "brokers": (),
                },
                ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {
                    "error_code": 0,
                    "error_message": None,
                    "results": (),
                },
            },
            versions=versions or {},
            tls=tls,
        )

    def __enter__(self) -> Self:
        self.broker.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.__exit__()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    def asked(self, key: ApiKey) -> list[Any]:
        return self.broker.asked(key)

    def _metadata(self, request: Any) -> Answer:
        names = self.topics if request.topics is None else [each.name for each in request.topics]
        return {
            "brokers": [
                {
                    "node_id": 1,
                    "host": "127.0.0.1",
                    "port": self.broker.advertised_port or self.broker.port,
                }
            ],
            "cluster_id": self.cluster_id,
            "controller_id": 1,
            "topics": [self._described(name) for name in names],
        }

    def _described(self, name: str) -> Answer:
        if name not in self.topics:
            return {"name": name, "error_code": 3, "partitions": ()}
        topic = self.topics[name]
        partition = {
            "partition_index": 0,
            "leader_id": 1,
            "leader_epoch": topic.epoch,
            "replica_nodes": [1],
            "isr_nodes": [1],
        }
        described = {"name": name, "topic_id": topic.topic_id, "partitions": [partition]}
        return self._tampered(ApiKey.METADATA, name, described)

    def _configs(self, request: Any) -> Answer:
        return {
            "results": [
                {
                    "error_code": 0,
                    "error_message": None,
                    "resource_type": 2,
                    "resource_name": each.resource_name,
                    "configs": (),
                }
                for each in request.resources
            ]
        }

    def _fetch(self, request: Any) -> Answer:
        responses, has_records = [], False
        for asked in request.topics:
            by_id = {topic.topic_id: name for name, topic in self.topics.items()}
            name = asked.topic or by_id[asked.topic_id]
            topic = self.topics[name]
            (part,) = asked.partitions
            answer: Answer = {
                "partition_index": 0,
                "error_code": 0,
                "high_watermark": topic.end,
                "last_stable_offset": topic.end,
                "log_start_offset": topic.start,
                "records": topic.read(part.fetch_offset, part.partition_max_bytes),
            }
            if part.current_leader_epoch not in (-1, topic.epoch):
                answer |= {"error_code": 74, "records": b""}
            elif not topic.start <= part.fetch_offset <= topic.end:
                answer |= {"error_code": 1, "high_watermark": -1, "records": b""}
            partition = self._tampered(ApiKey.FETCH, name, answer)
            has_records = has_records or bool(partition["records"])
            identity = {"topic": name, "topic_id": topic.topic_id}
            responses.append(identity | {"partitions": [partition]})
        if not has_records:
            # As a broker does, for long enough that who asks again at once leaves others the CPU.
            time.sleep(min(request.max_wait_ms, MOST_WAIT_MS) / 1000)
        return {"error_code": 0, "session_id": 0, "responses": responses + self.extra}

    def _list_offsets(self, request: Any) -> Answer:
        topics = []
        for asked in request.topics:
            (part,) = asked.partitions
            topic = self.topics[asked.name]
            answer = {
                "partition_index": 0,
                "error_code": 0,
                "offset": topic.start if part.timestamp == -2 else topic.end,
                "timestamp": -1,
                "target": part.timestamp,
            }
            answer = self._tampered(ApiKey.LIST_OFFSETS, asked.name, answer)
            answer.pop("target")
            topics.append({"name": asked.name, "partitions": [answer]})
        return {"topics": topics}

    def _epoch_ends(self, request: Any) -> Answer:
        topics = []
        for asked in request.topics:
            (part,) = asked.partitions
            topic = self.topics[asked.topic]
            epoch, end = topic.epoch_ends.get(part.leader_epoch, (part.leader_epoch, topic.end))
            answer: Answer = {
                "partition": 0,
                "error_code": 0,
                "leader_epoch": epoch,
                "end_offset": end,
            }
            answer = self._tampered(ApiKey.OFFSET_FOR_LEADER_EPOCH, asked.topic, answer)
            topics.append({"topic": asked.topic, "partitions": [answer]})
        return {"topics": topics}

    def _tampered(self, key: ApiKey, topic: str, answer: Answer) -> Answer:
        return self.tamper.get(key, as_it_is)(topic, answer)
