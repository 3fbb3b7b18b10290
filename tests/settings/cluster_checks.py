"""What each setting of a broker of a cluster changes; the controllers are scripted."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from joined_broker import JoinedBroker, format_directory
from patience import eventually
from scripted_broker import Silence
from scripted_controller import CLUSTER_ID, ScriptedController
from setting_checks import REFUSED, of_broker
from settings_lab import Lab

from horolog.broker.cluster.controllers import ControllersUnavailable
from horolog.broker.cluster.directory import lock_cluster_directory
from horolog.broker.cluster.internal_topics import InternalTopics, creation, wanted_topics
from horolog.broker.cluster.membership import Membership
from horolog.broker.cluster.own_rights import OwnRights
from horolog.broker.cluster.remote_admission import RemoteAdmission
from horolog.client.security import PLAINTEXT, Security
from horolog.clock import ManualClock
from horolog.config import BrokerConfig, ClusterConfig, Settings
from horolog.errors import ErrorCode
from horolog.metadata import Image
from horolog.record import LogRecord, build_batch
from horolog.schemas.metadata import METADATA_VERSION, FeatureLevel, RegisterBroker
from horolog.storage.names import TopicPartition
from horolog.transactions.values import ProducerIdentity
from horolog.wire import ApiKey, NodeEndpoint

NODE, DIRECTORY = 1, UUID(int=900)
CONTROLLERS = {
    "node.id": str(NODE),
    "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    "controller.listener.names": "CONTROLLER",
}
LOGIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
)


def given_to(lab: Lab) -> dict[str, str]:
    """All settings of the node alone but those of its place."""
    static = lab.broker.broker.catalogue.live.settings.static
    return {
        name: value for name, value in static.items() if name not in ("log.dir", "process.roles")
    }


def as_member(lab: Lab, given: Mapping[str, str] = CONTROLLERS, **more: str) -> BrokerConfig:
    """The configuration of a broker of a cluster that has the same settings."""
    roles = {"process.roles": "broker", **more}
    return Settings({**given, **given_to(lab), **roles}).broker_config()


def of_cluster(config: BrokerConfig) -> ClusterConfig:
    assert config.cluster is not None
    return config.cluster


def seen_of_member(
    lab: Lab,
    look: Callable[[ScriptedController, JoinedBroker], Any],
    hooks: Mapping[ApiKey, Any] | None = None,
) -> Any:
    """What is seen of a broker with the same settings that has joined scripted controllers."""
    with TemporaryDirectory() as directory, ScriptedController() as quorum:
        quorum.answers.update(hooks or {})
        given = given_to(lab)
        with JoinedBroker(Path(directory) / "1", quorum, settings=given) as broker:
            return look(quorum, broker)


# --- which controllers, and how -----------------------------------------------------------


@of_broker("process.roles", {"broker,controller": "alone", "broker": REFUSED}, beside=CONTROLLERS)
def whether_a_directory_that_is_not_formatted_is_served(lab: Lab) -> str:
    return "alone" if lab.broker.broker.cluster is None else "joined"


async def port_that_is_asked_first(config: BrokerConfig) -> int:
    format_directory(Path(config.log_dir), CLUSTER_ID, NODE)
    directory = lock_cluster_directory(config)
    membership = Membership(config, ManualClock(), directory)
    try:
        return membership.known.next_server().port
    finally:
        await membership.close()
        directory.lock.close()


@of_broker("controller.quorum.bootstrap.servers", {"127.0.0.1:1": 1, "127.0.0.1:2": 2})
def port_of_the_controller_that_is_asked_first(lab: Lab) -> int:
    given = {name: value for name, value in CONTROLLERS.items() if "bootstrap" not in name}
    with TemporaryDirectory() as directory:
        config = as_member(lab, given, **{"log.dir": directory})
        return lab.broker.run(port_that_is_asked_first(config))


@of_broker("controller.quorum.voters", {"100@127.0.0.1:1": 1, "100@127.0.0.1:2": 2})
def port_of_the_voter_that_is_asked_first(lab: Lab) -> int:
    return int(port_of_the_controller_that_is_asked_first(lab))


@of_broker("controller.listener.names", {"CONTROLLER": False, "SSL": True})
def whether_controllers_are_asked_over_tls(lab: Lab) -> bool:
    given = {name: value for name, value in CONTROLLERS.items() if "listener" not in name}
    return Security.of(of_cluster(as_member(lab, given)).controller_security).uses_tls


@of_broker(
    "sasl.mechanism.controller.protocol", {"PLAIN": "PLAIN", "SCRAM-SHA-256": "SCRAM-SHA-256"}
)
def mechanism_by_which_it_logs_in_to_controllers(lab: Lab) -> str:
    given = {**CONTROLLERS, "controller.listener.names": "SASL_PLAINTEXT"}
    prefix = "listener.name.sasl_plaintext."
    logins = {f"{prefix}{it}.sasl.jaas.config": LOGIN for it in ("plain", "scram-sha-256")}
    config = as_member(lab, given, **logins)
    return dict(Security.of(of_cluster(config).controller_security).settings)["sasl.mechanism"]


# --- life ---------------------------------------------------------------------------------


@of_broker("broker.heartbeat.interval.ms", {"50": True, "1000000": False})
def whether_heartbeats_follow_each_other_soon(lab: Lab) -> bool:
    def look(quorum: ScriptedController, broker: JoinedBroker) -> bool:
        before = len(quorum.asked(ApiKey.BROKER_HEARTBEAT))
        return eventually(
            lambda: len(quorum.asked(ApiKey.BROKER_HEARTBEAT)) > before + 2, lab.soon_s
        )

    return bool(seen_of_member(lab, look))


@of_broker("broker.session.timeout.ms", {"500": True, "1000000": False})
def whether_a_heartbeat_without_an_answer_is_given_up_soon(lab: Lab) -> bool:
    def look(quorum: ScriptedController, broker: JoinedBroker) -> bool:
        quorum.answers[ApiKey.BROKER_HEARTBEAT] = lambda request, usual: Silence()
        before = len(quorum.asked(ApiKey.BROKER_HEARTBEAT))
        assert eventually(lambda: len(quorum.asked(ApiKey.BROKER_HEARTBEAT)) > before)
        found = eventually(lambda: broker.node.life.complaint is not None, lab.soon_s)
        broker.kill()
        return found

    return bool(seen_of_member(lab, look))


@of_broker("initial.broker.registration.timeout.ms", {"1": "gave up", "1000000": "joined"})
def end_of_a_start_whose_registration_is_refused_at_first(lab: Lab) -> str:
    refusals = iter([{"error_code": 101, "broker_epoch": -1}])
    with suppress(ControllersUnavailable):
        return str(
            seen_of_member(
                lab,
                lambda quorum, broker: "joined",
                {ApiKey.BROKER_REGISTRATION: lambda request, usual: next(refusals, None)},
            )
        )
    return "gave up"


@of_broker("controlled.shutdown.enable", {"true": True, "false": False})
def whether_the_controllers_are_asked_before_it_stops(lab: Lab) -> bool:
    def look(quorum: ScriptedController, broker: JoinedBroker) -> bool:
        broker.stop()
        return any(beat.want_shut_down for beat in quorum.asked(ApiKey.BROKER_HEARTBEAT))

    return bool(seen_of_member(lab, look))


# --- replicas -----------------------------------------------------------------------------


@of_broker("replica.high.watermark.checkpoint.interval.ms", {"50": True, "1000000": False})
def whether_a_high_watermark_is_written_soon(lab: Lab) -> bool:
    def look(quorum: ScriptedController, broker: JoinedBroker) -> bool:
        quorum.create_topic("t", [[NODE]])
        partitions = broker.broker.partitions
        assert eventually(lambda: ("t", 0) in partitions)
        broker.client.produce("t", 0, build_batch([LogRecord(broker.clock.now_ms(), None, b"v")]))
        path = broker.log_dir / "replication-offset-checkpoint"
        return eventually(lambda: path.exists() and "t 0 1" in path.read_text(), lab.soon_s)

    return bool(seen_of_member(lab, look))


@of_broker("replica.lag.time.max.ms", {"50": True, "1000000": False})
def whether_a_replica_that_is_silent_leaves_the_in_sync_replicas_soon(lab: Lab) -> bool:
    def look(quorum: ScriptedController, broker: JoinedBroker) -> bool:
        quorum.append(RegisterBroker(2, False, UUID(int=2), 7, (), (), fenced=False))
        quorum.create_topic("t", [[NODE, 2]])
        return eventually(lambda: bool(quorum.asked(ApiKey.ALTER_PARTITION)), lab.soon_s)

    return bool(seen_of_member(lab, look))


# --- internal topics ----------------------------------------------------------------------


def asked_for(lab: Lab, topic: str) -> dict[str, Any]:
    """How a missing internal topic is created where four brokers of Apache Kafka are alive."""
    wanted = wanted_topics(as_member(lab), {"share.version": 1})
    return creation(next(it for it in wanted if it.name == topic), (2, 3, 4, 5))


def replicas(created: Mapping[str, Any]) -> int:
    return len(created["assignments"][0]["broker_ids"])


def setting(created: Mapping[str, Any], name: str) -> str:
    return str({it["name"]: it["value"] for it in created["configs"]}[name])


@of_broker("offsets.topic.replication.factor", {"3": 3, "2": 2})
def replicas_of_the_topic_of_committed_offsets(lab: Lab) -> int:
    return replicas(asked_for(lab, "__consumer_offsets"))


@of_broker("transaction.state.log.replication.factor", {"3": 3, "2": 2})
def replicas_of_the_topic_of_transactions(lab: Lab) -> int:
    return replicas(asked_for(lab, "__transaction_state"))


@of_broker("transaction.state.log.min.isr", {"2": "2", "1": "1"})
def in_sync_replicas_that_the_topic_of_transactions_needs(lab: Lab) -> str:
    return setting(asked_for(lab, "__transaction_state"), "min.insync.replicas")


@of_broker("share.coordinator.state.topic.replication.factor", {"3": 3, "2": 2})
def replicas_of_the_topic_of_share_groups(lab: Lab) -> int:
    return replicas(asked_for(lab, "__share_group_state"))


@of_broker("share.coordinator.state.topic.min.isr", {"2": "2", "1": "1"})
def in_sync_replicas_that_the_topic_of_share_groups_needs(lab: Lab) -> str:
    return setting(asked_for(lab, "__share_group_state"), "min.insync.replicas")


@of_broker("share.coordinator.state.topic.num.partitions", {"50": 50, "3": 3})
def partitions_of_the_topic_of_share_groups(lab: Lab) -> int:
    return len(asked_for(lab, "__share_group_state")["assignments"])


@of_broker(
    "share.coordinator.state.topic.segment.bytes", {"104857600": "104857600", "5000": "5000"}
)
def size_of_the_segments_of_the_topic_of_share_groups(lab: Lab) -> str:
    return setting(asked_for(lab, "__share_group_state"), "segment.bytes")


def beside_kafka(lab: Lab, level: int) -> InternalTopics:
    """What is decided while internal topics are missing, and a broker of Apache Kafka is alive."""

    async def ask(api_key: ApiKey, fields: Mapping[str, Any], *, timeout_ms: int) -> Any:
        raise ControllersUnavailable("nobody is asked")

    internal = InternalTopics(NODE, DIRECTORY, as_member(lab), ask, lambda: 0)
    image = Image()
    image.apply(FeatureLevel(METADATA_VERSION, level))
    image.apply(RegisterBroker(2, False, UUID(int=2), 7, (), (), fenced=False))
    internal.look(image)
    return internal


@of_broker("horolog.cluster.cordoned", {"auto": True, "true": True, "false": False})
def whether_new_partitions_are_kept_away_while_internal_topics_are_missing(lab: Lab) -> bool:
    return bool(beside_kafka(lab, 30).cordoned)


@of_broker("horolog.cluster.internal.replicas", {"false": False, "true": True})
def whether_it_is_unfenced_where_it_could_be_given_internal_replicas(lab: Lab) -> bool:
    return beside_kafka(lab, 29).keeps_fenced is None


@of_broker(
    "add.partitions.to.txn.retry.backoff.ms",
    {"25": 5, "100": 2},
    beside={"add.partitions.to.txn.retry.backoff.max.ms": "100"},
)
def tries_to_add_a_partition_while_the_transaction_before_ends(lab: Lab) -> int:
    """In a cluster, where the coordinator is another broker."""
    tries = []

    async def ask(node: NodeEndpoint, api_key: ApiKey, body: Any, /, *, timeout_ms: int) -> Any:
        tries.append(body)
        its = SimpleNamespace(
            partition_index=0, partition_error_code=ErrorCode.concurrent_transactions
        )
        topic = SimpleNamespace(name="t", results_by_partition=[its])
        result = SimpleNamespace(transactional_id="x", topic_results=[topic])
        return SimpleNamespace(error_code=0, results_by_transaction=[result])

    lab.topic("t")
    parts = lab.broker.broker
    coordinator = NodeEndpoint(5, "localhost", 9)

    async def add() -> None:
        admission = RemoteAdmission(
            ask,
            lambda transactional_id: coordinator,
            parts.partitions,
            parts.catalogue.live,
            OwnRights(PLAINTEXT),
        )
        producer, adds_since = ProducerIdentity(7, 2), 12
        await admission.admitted("x", producer, [TopicPartition("t", 0)], adds_since)
        await admission.close()

    lab.broker.run(add())
    return len(tries)
