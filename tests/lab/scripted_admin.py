"""What a scripted controller answers to the calls of tools, plainly or in an Envelope."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from scripted_cluster import Refused, ScriptedCluster
from scripted_elections import NO_LEADER, Election, Wanted

from horolog.config import topic_settings
from horolog.errors import ErrorCode
from horolog.metadata.image import BROKER, TOPIC
from horolog.schemas.metadata import (
    ClearElr,
    Config,
    FeatureLevel,
    PartitionRecord,
    Record,
    RemoveTopic,
    TopicRecord,
)

_APPEND, _SUBTRACT, _DELETE = 2, 3, 1
_SETTINGS: Final = {it for it in topic_settings() if not it.startswith("horolog.")}


class TopicCalls:
    """Topics, settings, elections and reassignments of a cluster."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        self._log = cluster.log

    def create(
        self, name: str, assignments: Sequence[Sequence[int]], settings: Mapping[str, str]
    ) -> None:
        """Make a topic with these replicas, partition by partition."""
        topic_id = uuid4()
        records: list[Record] = [TopicRecord(name, topic_id)]
        records += [Config(TOPIC, name, key, value) for key, value in settings.items()]
        for index, replicas in enumerate(assignments):
            records.append(self._partition(topic_id, index, replicas))
        self._log.append(records)

    def _partition(self, topic_id: Any, index: int, replicas: Sequence[int]) -> PartitionRecord:
        brokers = self._cluster.image.brokers
        if not replicas or len(set(replicas)) < len(replicas) or set(replicas) - brokers.keys():
            raise Refused(ErrorCode.invalid_replica_assignment)
        isr = tuple(it for it in replicas if self._is_active(it))
        cordoned = any(
            (its := brokers[it]).cordoned and set(its.log_dirs) <= set(its.cordoned)
            for it in replicas
        )
        if not isr or cordoned:
            raise Refused(ErrorCode.invalid_replica_assignment)
        return PartitionRecord(
            index,
            topic_id,
            replicas=tuple(replicas),
            isr=isr,
            removing=(),
            adding=(),
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(map(self._cluster.directory_of, replicas)),
        )

    def _is_active(self, broker_id: int) -> bool:
        broker = self._cluster.image.brokers[broker_id]
        return not broker.fenced and not broker.in_controlled_shutdown

    def _placed(self, count: int, factor: int, first: int = 0) -> list[list[int]]:
        """Replicas round robin over the active brokers that are not cordoned."""
        brokers = [
            it.broker_id
            for it in self._cluster.image.brokers.values()
            if self._is_active(it.broker_id)
            and not (it.cordoned and set(it.log_dirs) <= set(it.cordoned))
        ]
        if not 0 < factor <= len(brokers):
            raise Refused(ErrorCode.invalid_replication_factor, f"of {len(brokers)} brokers")
        brokers.sort()
        turn = range(first, first + count)
        return [[brokers[(at + it) % len(brokers)] for it in range(factor)] for at in turn]

    def create_topics(self, request: Any) -> Mapping[str, Any]:
        """Answer a CreateTopics."""
        return {"topics": [self._created(it, request.validate_only) for it in request.topics]}

    def _created(self, asked: Any, validate_only: bool) -> dict[str, Any]:
        image = self._cluster.image
        answer: dict[str, Any] = {"name": asked.name}
        settings = {it.name: it.value for it in asked.configs if it.value is not None}
        try:
            if asked.name in image.topics:
                raise Refused(ErrorCode.topic_already_exists, f"Topic '{asked.name}' exists.")
            if settings.keys() - _SETTINGS:
                raise Refused(ErrorCode.invalid_config)
            count = 1 if asked.num_partitions == -1 else asked.num_partitions
            factor = 1 if asked.replication_factor == -1 else asked.replication_factor
            if asked.assignments:
                by_index = {it.partition_index: it.broker_ids for it in asked.assignments}
                replicas = [by_index[it] for it in sorted(by_index)]
                if len(set(map(len, replicas))) > 1:
                    raise Refused(ErrorCode.invalid_replica_assignment)
            elif count < 1:
                raise Refused(ErrorCode.invalid_partitions)
            else:
                replicas = self._placed(count, factor, len(image.topics))
            if not validate_only:
                self.create(asked.name, replicas, settings)
                answer["topic_id"] = image.topics[asked.name].topic_id
        except Refused as refused:
            return {**answer, "error_code": refused.code, "error_message": refused.message}
        kept = [
            {"name": key, "value": value, "read_only": False, "is_sensitive": False}
            for key, value in settings.items()
        ]
        return {
            **answer,
            "num_partitions": len(replicas),
            "replication_factor": len(replicas[0]),
            "configs": kept,
        }

    def delete_topics(self, request: Any) -> Mapping[str, Any]:
        """Answer a DeleteTopics."""
        image, responses = self._cluster.image, []
        asked = [(it.name, it.topic_id) for it in request.topics]
        asked += [(name, None) for name in request.topic_names]
        for name, topic_id in asked:
            topic = image.topics.get(name or "") if topic_id is None else image.by_id.get(topic_id)
            error = ErrorCode.none
            if topic is not None:
                name, topic_id = topic.name, topic.topic_id
                self._log.append([RemoveTopic(topic_id)])
            elif topic_id is None:
                error = ErrorCode.unknown_topic_or_partition
            else:
                error = ErrorCode.unknown_topic_id
            responses.append({"name": name, "topic_id": topic_id, "error_code": error})
        return {"responses": responses}

    def create_partitions(self, request: Any) -> Mapping[str, Any]:
        """Answer a CreatePartitions."""
        return {
            "results": [
                {"name": it.name, "error_code": self._grown(it, request.validate_only)}
                for it in request.topics
            ]
        }

    def _grown(self, asked: Any, validate_only: bool) -> ErrorCode:
        topic = self._cluster.image.topics.get(asked.name)
        if topic is None:
            return ErrorCode.unknown_topic_or_partition
        old = len(topic.partitions)
        if asked.count <= old:
            return ErrorCode.invalid_partitions
        factor = len(topic.partitions[0].replicas)
        try:
            replicas = (
                self._placed(asked.count - old, factor, old)
                if asked.assignments is None
                else [it.broker_ids for it in asked.assignments]
            )
            if len(replicas) != asked.count - old or {*map(len, replicas)} != {factor}:
                return ErrorCode.invalid_replica_assignment
            new = [
                self._partition(topic.topic_id, index, its)
                for index, its in enumerate(replicas, old)
            ]
        except Refused as refused:
            return refused.code
        if not validate_only:
            self._log.append(new)
        return ErrorCode.none

    # Settings and features.

    def alter_settings(self, request: Any) -> Mapping[str, Any]:
        """Answer an IncrementalAlterConfigs."""
        return {
            "responses": [
                {
                    "error_code": self._altered(it, request.validate_only),
                    "resource_type": it.resource_type,
                    "resource_name": it.resource_name,
                }
                for it in request.resources
            ]
        }

    def _altered(self, asked: Any, validate_only: bool) -> ErrorCode:
        image = self._cluster.image
        kind, name = asked.resource_type, asked.resource_name
        if kind == TOPIC and name not in image.topics:
            return ErrorCode.unknown_topic_or_partition
        if kind == BROKER and name and int(name) not in image.brokers:
            return ErrorCode.broker_id_not_registered
        if kind == TOPIC and {it.name for it in asked.configs} - _SETTINGS:
            return ErrorCode.invalid_config
        if validate_only:
            return ErrorCode.none
        records: list[Record] = []
        for change in asked.configs:
            value = None if change.config_operation == _DELETE else change.value
            if change.config_operation in (_APPEND, _SUBTRACT):
                old = image.settings_of(kind, name).get(change.name, "")
                parts = [it for it in old.split(",") if it]
                given = (change.value or "").split(",")
                kept = [it for it in parts if it not in given]
                value = ",".join(kept + (given if change.config_operation == _APPEND else []))
            if image.settings_of(kind, name).get(change.name) == value:
                continue
            records.append(Config(kind, name, change.name, value))
            if change.name == "min.insync.replicas" and kind in (TOPIC, BROKER):
                records.append(ClearElr(name if kind == TOPIC else ""))
        if records:
            self._log.append(records)
        self._elect_uncleanly()
        return ErrorCode.none

    def _elect_uncleanly(self) -> None:
        for topic in self._cluster.image.topics.values():
            for partition in list(topic.partitions.values()):
                if partition.leader == NO_LEADER:
                    self._cluster.change(partition, Wanted())

    def update_features(self, request: Any) -> Mapping[str, Any]:
        """Answer an UpdateFeatures; no level is checked but against the brokers' claims."""
        for update in request.feature_updates:
            for broker in self._cluster.image.brokers.values():
                claims = {it.name: it for it in broker.features}
                claim = claims.get(update.feature)
                level = update.max_version_level
                if level and (claim is None or not claim.min_level <= level <= claim.max_level):
                    raise Refused(
                        ErrorCode.feature_update_failed,
                        f"Broker {broker.broker_id} does not support this feature.",
                    )
        if not request.validate_only:
            self._log.append(
                [FeatureLevel(it.feature, it.max_version_level) for it in request.feature_updates]
            )
        return {}

    # Leaders and replicas.

    def _found(self, name: str, index: int) -> PartitionRecord | None:
        topic = self._cluster.image.topics.get(name)
        return None if topic is None else topic.partitions.get(index)

    def elect_leaders(self, request: Any) -> Mapping[str, Any]:
        """Answer an ElectLeaders."""
        asked: Iterable[tuple[str, Iterable[int]]]
        if request.topic_partitions is None:
            topics = self._cluster.image.topics.values()
            asked = [(it.name, list(it.partitions)) for it in topics]
        else:
            asked = [(it.topic, it.partitions) for it in request.topic_partitions]
        return {
            "replica_election_results": [
                {
                    "topic": topic,
                    "partition_result": [
                        {
                            "partition_id": index,
                            "error_code": self._elected(topic, index, request.election_type),
                        }
                        for index in indexes
                    ],
                }
                for topic, indexes in asked
            ]
        }

    def _elected(self, topic: str, index: int, kind: int) -> ErrorCode:
        partition = self._found(topic, index)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        election = Election.UNCLEAN if kind == 1 else Election.PREFERRED
        if election is Election.UNCLEAN and partition.leader != NO_LEADER:
            return ErrorCode.election_not_needed
        if election is Election.PREFERRED and partition.leader == partition.replicas[0]:
            return ErrorCode.election_not_needed
        if self._cluster.change(partition, Wanted(), election) == partition:
            if election is Election.PREFERRED:
                return ErrorCode.preferred_leader_not_available
            return ErrorCode.eligible_leaders_not_available
        return ErrorCode.none

    def alter_reassignments(self, request: Any) -> Mapping[str, Any]:
        """Answer an AlterPartitionReassignments."""
        return {
            "responses": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": it.partition_index,
                            "error_code": self._reassigned(topic.name, it),
                        }
                        for it in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def _reassigned(self, topic: str, asked: Any) -> ErrorCode:
        partition = self._found(topic, asked.partition_index)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        original = [it for it in partition.replicas if it not in partition.adding]
        if asked.replicas is None:
            if not partition.adding and not partition.removing:
                return ErrorCode.no_reassignment_in_progress
            isr = [it for it in partition.isr if it not in partition.adding] or partition.isr
            wanted = Wanted(isr=isr, replicas=original, removing=(), adding=())
            self._cluster.change(partition, wanted)
            return ErrorCode.none
        target, brokers = list(asked.replicas), self._cluster.image.brokers
        if not target or len(set(target)) < len(target) or set(target) - brokers.keys():
            return ErrorCode.invalid_replica_assignment
        removing = [it for it in original if it not in target]
        adding = [it for it in target if it not in original]
        replicas = target + sorted(removing)
        wanted = Wanted(replicas=replicas, removing=sorted(removing), adding=sorted(adding))
        self._cluster.change(partition, wanted)
        return ErrorCode.none

    def list_reassignments(self, request: Any) -> Mapping[str, Any]:
        """Answer a ListPartitionReassignments."""
        asked = None
        if request.topics is not None:
            asked = {it.name: set(it.partition_indexes) for it in request.topics}
        topics = []
        for topic in self._cluster.image.topics.values():
            partitions = [
                {
                    "partition_index": it.partition,
                    "replicas": it.replicas,
                    "adding_replicas": it.adding,
                    "removing_replicas": it.removing,
                }
                for it in topic.partitions.values()
                if (it.adding or it.removing)
                and (asked is None or it.partition in asked.get(topic.name, ()))
            ]
            if partitions:
                topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}
