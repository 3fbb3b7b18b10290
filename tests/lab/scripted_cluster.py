"""What a scripted controller decides about brokers and partitions, by Kafka's rules; no sockets.

Each method takes a decoded request and gives the answer, and appends the records that follow.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from scripted_elections import NO_LEADER, Election, Rules, Wanted, change_of
from scripted_quorum import QuorumLog

from horolog.errors import ErrorCode
from horolog.metadata.image import BROKER, TOPIC, Image
from horolog.schemas.metadata import (
    METADATA_VERSION,
    BeginTransaction,
    BrokerChange,
    BrokerEndpoint,
    Config,
    EndTransaction,
    FeatureLevel,
    NoOp,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBroker,
    Supported,
    UnregisterBroker,
)

ELR: Final = "eligible.leader.replicas.version"
FEATURES_OF_4_4: Final[Mapping[str, int]] = {
    METADATA_VERSION: 33,
    ELR: 1,
    "group.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
}
"""Levels with which a new cluster of 4.4 begins."""
PRODUCER_IDS: Final = 1000
MIGRATING, UNASSIGNED, LOST = UUID(int=0), UUID(int=1), UUID(int=2)
_RESERVED_IDS: Final = 100


class Refused(Exception):
    """One error for a whole request."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


@dataclass
class Session:
    """A broker's process, as its heartbeats show it; it is valid from the first of them on."""

    touched_ms: int | None = None
    metadata_offset: int = -1
    shutdown_offset: int | None = None


class ScriptedCluster:
    """Brokers and partitions under controllers whose clock stands still until it is advanced."""

    def __init__(
        self,
        log: QuorumLog,
        cluster_id: str,
        features: Mapping[str, int] = FEATURES_OF_4_4,
        session_timeout_ms: int = 9000,
    ) -> None:
        self.log = log
        self.cluster_id = cluster_id
        self.session_timeout_ms = session_timeout_ms
        self.sessions: dict[int, Session] = {}
        self.kept_fenced: set[int] = set()
        """Brokers that stay fenced whatever their heartbeats ask for."""
        self._registered_at: dict[int, int] = {}  # offsets of RegisterBroker records
        log.lead(log.leader)
        levels = [FeatureLevel(name, level) for name, level in features.items()]
        log.append([BeginTransaction("Bootstrap records")])
        log.append([*levels, *self._of_elr(features)])
        log.append([EndTransaction()])

    @staticmethod
    def _of_elr(features: Mapping[str, int]) -> Iterable[Record]:
        if features.get(ELR):
            yield Config(BROKER, "", "min.insync.replicas", "1")

    @property
    def image(self) -> Image:
        """All records, committed or not."""
        return self.log.image

    # Time and sessions.

    def advance(self, ms: int) -> None:
        """Move the controllers' clock, and fence brokers whose sessions have expired."""
        self.log.now_ms += ms
        for broker_id, broker in list(self.image.brokers.items()):
            if not broker.fenced and not self.has_session(broker_id):
                self.fence(broker_id)

    def has_session(self, broker_id: int) -> bool:
        """Whether a broker's process counts as alive."""
        session = self.sessions.get(broker_id)
        if session is None or session.touched_ms is None:
            return False
        return self.log.now_ms - session.touched_ms < self.session_timeout_ms

    def expire(self, broker_id: int) -> None:
        """End the session of a broker, as if its heartbeats had not come for long enough."""
        self.sessions.pop(broker_id, None)
        if broker_id in self.image.brokers and not self.image.brokers[broker_id].fenced:
            self.fence(broker_id)

    def renew_sessions(self) -> None:
        """Give all brokers a new session, as a controller does that becomes active."""
        for broker_id in self.image.brokers:
            self.sessions[broker_id] = Session(self.log.now_ms)

    # Brokers.

    def register(self, request: Any) -> Mapping[str, Any]:
        """Answer a BrokerRegistration."""
        broker_id, image = request.broker_id, self.image
        if request.cluster_id != self.cluster_id:
            raise Refused(ErrorCode.inconsistent_cluster_id)
        existing = image.brokers.get(broker_id)
        incarnation = request.incarnation_id or UUID(int=0)
        is_same = existing is not None and existing.incarnation_id == incarnation
        if existing is not None and self.has_session(broker_id) and not is_same:
            raise Refused(ErrorCode.duplicate_broker_registration)
        if request.is_migrating_zk_broker:
            raise Refused(ErrorCode.broker_id_not_registered)
        self._check_directories(broker_id, request.log_dirs)
        self._check_features(request.features)
        records: list[Record] = []
        epoch = self.log.end
        is_fenced, in_shutdown = True, False
        if is_same:
            assert existing is not None
            epoch = existing.broker_epoch
            is_fenced, in_shutdown = existing.fenced, existing.in_controlled_shutdown
        elif existing is not None:
            was_clean = request.previous_broker_epoch == existing.broker_epoch
            has_elr = self.image.features.get(ELR, 0) > 0
            records += self._after_loss(broker_id, is_unclean=has_elr and not was_clean)
        records.append(
            RegisterBroker(
                broker_id,
                is_migrating=False,
                incarnation_id=incarnation,
                broker_epoch=epoch,
                endpoints=tuple(
                    BrokerEndpoint(it.name, it.host, it.port, it.security_protocol)
                    for it in request.listeners
                ),
                features=tuple(
                    Supported(it.name, it.min_supported_version, it.max_supported_version)
                    for it in request.features
                ),
                rack=request.rack,
                fenced=is_fenced,
                in_controlled_shutdown=in_shutdown,
                log_dirs=tuple(request.log_dirs),
            )
        )
        base = self.log.append(records)
        self._registered_at[broker_id] = base + len(records) - 1
        if not is_same:
            self.sessions[broker_id] = Session()
        return {"broker_epoch": epoch}

    def _check_directories(self, broker_id: int, directories: tuple[UUID | None, ...]) -> None:
        reserved = any((it or MIGRATING).int < _RESERVED_IDS for it in directories)
        others = {
            directory
            for broker in self.image.brokers.values()
            for directory in broker.log_dirs
            if broker.broker_id != broker_id
        }
        is_double = len(set(directories)) < len(directories)
        if not directories or reserved or is_double or others & set(directories):
            raise Refused(ErrorCode.invalid_registration)

    def _check_features(self, features: Iterable[Any]) -> None:
        claims = {it.name: it for it in features}
        for name, level in self.image.features.items():
            claim = claims.get(name)
            if claim is None and name == METADATA_VERSION:
                raise Refused(ErrorCode.invalid_registration)
            if claim is None or not (
                claim.min_supported_version <= level <= claim.max_supported_version
            ):
                raise Refused(ErrorCode.unsupported_version)
        for name, claim in claims.items():
            if name not in self.image.features and claim.min_supported_version > 0:
                raise Refused(ErrorCode.unsupported_version)

    def heartbeat(self, request: Any) -> Mapping[str, Any]:
        """Answer a BrokerHeartbeat."""
        broker_id = request.broker_id
        broker = self._checked(broker_id, request.broker_epoch)
        session = self.sessions.setdefault(broker_id, Session())
        session.touched_ms = self.log.now_ms
        session.metadata_offset = request.current_metadata_offset
        is_caught_up = request.current_metadata_offset >= self._registered_at.get(broker_id, 0)
        shuts_down = False
        if broker.fenced:
            shuts_down = request.want_shut_down
            unfences = not shuts_down and not request.want_fence and is_caught_up
            if unfences and broker_id not in self.kept_fenced:
                self._unfence(broker)
                session.metadata_offset = -1  # Kafka's controller waits for the next heartbeat
        elif broker.in_controlled_shutdown:
            shuts_down = not self._leads(broker_id) and self._is_known(session)
        elif request.want_fence:
            shuts_down = request.want_shut_down
            self.fence(broker_id)
        elif request.want_shut_down:
            shuts_down = not self._leads(broker_id)
            if not shuts_down:
                self._shut_down(broker, session)
        if shuts_down and not self.image.brokers[broker_id].fenced:
            self.fence(broker_id)
        self._take_offline(broker_id, request.offline_log_dirs)
        self._cordon(broker_id, request.cordoned_log_dirs)
        return {
            "is_caught_up": is_caught_up,
            "is_fenced": self.image.brokers[broker_id].fenced,
            "should_shut_down": shuts_down,
        }

    def _checked(self, broker_id: int, broker_epoch: int) -> RegisterBroker:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            raise Refused(ErrorCode.stale_broker_epoch)
        return broker

    def _leads(self, broker_id: int) -> bool:
        return any(it.leader == broker_id for it in self._partitions())

    def _is_known(self, session: Session) -> bool:
        """Whether all active brokers have applied the records by which others lead."""
        offsets = [
            it.metadata_offset for number, it in self.sessions.items() if self._is_active(number)
        ]
        return (session.shutdown_offset or 0) <= min(offsets, default=1 << 63)

    def _is_active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def fence(self, broker_id: int) -> None:
        """Fence a broker: it leaves all ISRs, and others lead."""
        broker = self.image.brokers[broker_id]
        changes = self._after_loss(broker_id)
        self.log.append([*changes, BrokerChange(broker_id, broker.broker_epoch, fenced=1)])

    def _unfence(self, broker: RegisterBroker) -> None:
        number = broker.broker_id
        may = partial(self._may_lead, added=number)
        changes = [
            change_of(partition, Wanted(), self._rules(partition, may))
            for partition in self._partitions()
            if partition.leader == NO_LEADER
        ]
        unfenced = BrokerChange(number, broker.broker_epoch, fenced=-1)
        self.log.append([unfenced, *filter(None, changes)])

    def _shut_down(self, broker: RegisterBroker, session: Session) -> None:
        number = broker.broker_id
        begun = BrokerChange(number, broker.broker_epoch, in_controlled_shutdown=1)
        self.log.append([begun, *self._after_loss(number)])
        session.shutdown_offset = self.log.end - 1

    def _after_loss(
        self, broker_id: int, directory: UUID | None = None, *, is_unclean: bool = False
    ) -> list[Record]:
        """Changes of partitions that lose a broker, or one of its directories.

        With `is_unclean` it may have lost records, so that it leaves the ELR too.
        """
        may = partial(self._may_lead, removed=broker_id)
        changes = []
        for partition in self._partitions():
            elr = (partition.elr or ()) if is_unclean else ()
            if broker_id not in (*partition.isr, *elr):
                continue
            at = dict(zip(partition.replicas, partition.directories, strict=False))
            if directory is not None and at.get(broker_id) != directory:
                continue
            isr = [it for it in partition.isr if it != broker_id]
            wanted = Wanted(isr=isr, unclean=(broker_id,) if is_unclean else ())
            changes.append(change_of(partition, wanted, self._rules(partition, may)))
        return [it for it in changes if it is not None]

    def _take_offline(self, broker_id: int, offline: tuple[UUID | None, ...]) -> None:
        broker = self.image.brokers[broker_id]
        for directory in broker.log_dirs:
            if directory in offline:
                self.log.append(self._after_loss(broker_id, directory))
        online = tuple(it for it in broker.log_dirs if it not in offline)
        if online != broker.log_dirs:
            self.log.append([BrokerChange(broker_id, broker.broker_epoch, log_dirs=online)])

    def _cordon(self, broker_id: int, cordoned: tuple[UUID | None, ...] | None) -> None:
        broker = self.image.brokers[broker_id]
        directories = tuple(it for it in cordoned or () if it is not None)
        if cordoned is None or directories == (broker.cordoned or ()):
            return
        self.log.append([BrokerChange(broker_id, broker.broker_epoch, cordoned=directories)])

    def unregister(self, request: Any) -> Mapping[str, Any]:
        """Answer an UnregisterBroker."""
        broker = self.image.brokers.get(request.broker_id)
        if broker is None:
            raise Refused(ErrorCode.broker_id_not_registered)
        changes = self._after_loss(broker.broker_id)
        self.log.append([*changes, UnregisterBroker(broker.broker_id, broker.broker_epoch)])
        self.sessions.pop(broker.broker_id, None)
        return {}

    def allocate_producer_ids(self, request: Any) -> Mapping[str, Any]:
        """Answer an AllocateProducerIds."""
        broker = self._checked(request.broker_id, request.broker_epoch)
        first = self.image.next_producer_id
        block = first + PRODUCER_IDS
        self.log.append([ProducerIdsRecord(broker.broker_id, broker.broker_epoch, block)])
        return {"producer_id_start": first, "producer_id_len": PRODUCER_IDS}

    # Partitions.

    def _partitions(self) -> list[PartitionRecord]:
        topics = self.image.topics.values()
        return [partition for topic in topics for partition in topic.partitions.values()]

    def _may_lead(
        self, partition: PartitionRecord, replica: int, removed: int = -1, added: int = -1
    ) -> bool:
        broker = self.image.brokers.get(replica)
        if broker is None or replica == removed:
            return False
        at = dict(zip(partition.replicas, partition.directories, strict=False)).get(replica)
        is_online = at in (None, MIGRATING, UNASSIGNED) or at in broker.log_dirs
        return is_online and (replica == added or self._is_active(replica))

    def _rules(
        self,
        partition: PartitionRecord,
        may_lead: Callable[[PartitionRecord, int], bool] | None = None,
        election: Election | None = None,
    ) -> Rules:
        may_lead = may_lead or self._may_lead
        topic = self.image.by_id[partition.topic_id].name
        if election is None:
            is_unclean = self.setting(topic, "unclean.leader.election.enable", "false") == "true"
            election = Election.UNCLEAN if is_unclean else Election.ONLINE
        min_isr = int(self.setting(topic, "min.insync.replicas", "1"))
        return Rules(
            can_lead=partial(may_lead, partition),
            directory_of=self.directory_of,
            min_isr=min(min_isr, len(partition.replicas)),
            has_elr=self.image.features.get(ELR, 0) > 0,
            election=election,
        )

    def setting(self, topic: str, name: str, default: str) -> str:
        """The value of a topic's setting, by the controllers' view."""
        for resource in ((TOPIC, topic), (BROKER, "")):
            if name in (settings := self.image.settings_of(*resource)):
                return settings[name]
        return default

    def directory_of(self, broker_id: int) -> UUID:
        """The directory of a new replica: the only one of a broker, or none yet."""
        directories = self.image.brokers[broker_id].log_dirs
        return directories[0] if len(directories) == 1 else UNASSIGNED

    def change(
        self, partition: PartitionRecord, wanted: Wanted, election: Election | None = None
    ) -> PartitionRecord:
        """Change a partition, and elect where that is due; the partition after it."""
        change = change_of(partition, wanted, self._rules(partition, election=election))
        if change is not None:
            self.log.append([change])
        return self.image.by_id[partition.topic_id].partitions[partition.partition]

    def alter_partition(self, request: Any) -> Mapping[str, Any]:
        """Answer an AlterPartition."""
        self._checked(request.broker_id, request.broker_epoch)
        return {
            "topics": [
                {
                    "topic_id": topic.topic_id,
                    "partitions": [
                        {
                            "partition_index": asked.partition_index,
                            "leader_id": 0,
                            "leader_epoch": 0,
                            "partition_epoch": 0,
                            **self._altered(request.broker_id, topic.topic_id, asked),
                        }
                        for asked in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def _altered(self, broker_id: int, topic_id: UUID | None, asked: Any) -> dict[str, Any]:
        topic = self.image.by_id.get(topic_id or UUID(int=0))
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id}
        partition = topic.partitions.get(asked.partition_index)
        if partition is None:
            return {"error_code": ErrorCode.unknown_topic_or_partition}
        members = {it.broker_id: it.broker_epoch for it in asked.new_isr_with_epochs}
        members |= dict.fromkeys(asked.new_isr, -1)
        count = len(asked.new_isr_with_epochs) + len(asked.new_isr)
        error = self._refusal(broker_id, partition, asked, members)
        if error is None and count != len(members):
            error = ErrorCode.invalid_request
        if error is None and not all(map(self._is_eligible, members, members.values())):
            error = ErrorCode.ineligible_replica
        if error is not None:
            return {"error_code": error}
        wanted = Wanted(isr=list(members), recovery_state=asked.leader_recovery_state)
        altered = self.change(partition, wanted)
        if altered.leader != broker_id:
            return {"error_code": ErrorCode.new_leader_elected}
        return {
            "leader_id": altered.leader,
            "isr": altered.isr,
            "leader_recovery_state": altered.recovery_state,
            "leader_epoch": altered.leader_epoch,
            "partition_epoch": altered.partition_epoch,
        }

    def _refusal(
        self, broker_id: int, partition: PartitionRecord, asked: Any, members: Mapping[int, int]
    ) -> ErrorCode | None:
        if (
            asked.leader_epoch > partition.leader_epoch
            or asked.partition_epoch > partition.partition_epoch
        ):
            return ErrorCode.not_controller
        if asked.leader_epoch < partition.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        if broker_id != partition.leader:
            return ErrorCode.invalid_request
        if asked.partition_epoch < partition.partition_epoch:
            return ErrorCode.invalid_update_version
        is_isr = members.keys() <= set(partition.replicas) and partition.leader in members
        recovers = asked.leader_recovery_state == 1
        if not is_isr or (recovers and (len(members) > 1 or not partition.recovery_state)):
            return ErrorCode.invalid_request
        return None

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        if broker is None or not self._is_active(broker_id):
            return False
        return broker_epoch in (-1, broker.broker_epoch)

    def assign_directories(self, request: Any) -> Mapping[str, Any]:
        """Answer an AssignReplicasToDirs."""
        self._checked(request.broker_id, request.broker_epoch)
        return {
            "directories": [
                {
                    "id_": directory.id_,
                    "topics": [
                        {
                            "topic_id": topic.topic_id,
                            "partitions": [
                                {
                                    "partition_index": asked.partition_index,
                                    "error_code": self._assigned(
                                        request.broker_id,
                                        directory.id_ or MIGRATING,
                                        topic.topic_id,
                                        asked.partition_index,
                                    ),
                                }
                                for asked in topic.partitions
                            ],
                        }
                        for topic in directory.topics
                    ],
                }
                for directory in request.directories
            ]
        }

    def _assigned(
        self, broker_id: int, directory: UUID, topic_id: UUID | None, index: int
    ) -> ErrorCode:
        topic = self.image.by_id.get(topic_id or UUID(int=0))
        if topic is None:
            return ErrorCode.unknown_topic_id
        partition = topic.partitions.get(index)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if broker_id not in partition.replicas:
            return ErrorCode.not_leader_or_follower
        at = dict(zip(partition.replicas, partition.directories, strict=False))
        at[broker_id] = directory
        wanted = Wanted(directories=[at[it] for it in partition.replicas])
        partition = self.change(partition, wanted)
        if directory not in (MIGRATING, UNASSIGNED, *self.image.brokers[broker_id].log_dirs):
            isr = [it for it in partition.isr if it != broker_id]
            self.change(partition, Wanted(isr=isr))
        return ErrorCode.none

    def tick(self) -> None:
        """Write what an idle controller writes."""
        self.log.append([NoOp()])
