"""What a broker may ask of a controller, with what is comparable of the answers.

Each dialogue has brokers and topics of its own, so that all can be held with one controller.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID, uuid4

from controller_asker import CLAIMS, ControllerAsker

from horolog.schemas.metadata import PartitionRecord
from horolog.wire import ApiKey, decode_response, parse_response_header

Dialogue = Callable[[ControllerAsker], list[Any]]
DIALOGUES: Final[dict[str, tuple[int, Dialogue]]] = {}
"""By name, with the first id of the brokers that it may use."""


def dialogue(held: Dialogue) -> Dialogue:
    """Decorate one that may use ten ids of brokers."""
    DIALOGUES[held.__name__] = 10 * (len(DIALOGUES) + 1), held
    return held


class Ids:
    """Ids of brokers of one dialogue, numbered from 0."""

    def __init__(self, asker: ControllerAsker) -> None:
        self.first = asker.first_id

    def __getitem__(self, number: int) -> int:
        return self.first + number

    def of(self, numbers: Any) -> list[int] | None:
        return None if numbers is None else [it - self.first for it in numbers]


def state(asker: ControllerAsker, topic: str, index: int = 0) -> Any:
    """A partition, with its brokers numbered from 0."""
    ids = Ids(asker)
    it: PartitionRecord = asker.follow().topics[topic].partitions[index]
    names = {its: f"d{number - ids.first}" for number, its in asker.directories.items()}
    return (
        ("replicas", ids.of(it.replicas), "isr", ids.of(it.isr)),
        ("leader", it.leader - ids.first if it.leader >= 0 else it.leader),
        ("epochs", it.leader_epoch, it.partition_epoch, "recovery", it.recovery_state),
        ("removing", ids.of(it.removing), "adding", ids.of(it.adding)),
        ("elr", ids.of(it.elr), "last", ids.of(it.last_known_elr)),
        ("directories", [names.get(its, str(its)) for its in it.directories]),
    )


def fence(asker: ControllerAsker, broker_id: int) -> None:
    assert asker.heartbeat(broker_id, want_fence=True).is_fenced


def shown(answer: Any) -> Any:
    """An answer about a partition, without what differs from run to run."""
    if not answer.error_code:
        return (answer.leader_epoch, answer.partition_epoch, len(answer.isr))
    return answer.error_code


@dialogue
def registrations(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    first = asker.register(b[0])
    incarnation = asker.incarnations[b[0]]
    said = [
        first.error_code,
        asker.register(b[0]).error_code,  # a session of another process
        asker.register(b[0], incarnation_id=incarnation, listeners=[]).error_code,
        asker.epochs[b[0]] == first.broker_epoch,  # amended
        asker.register(b[1], cluster_id="x").error_code,
        asker.register(b[1], log_dirs=[]).error_code,
        asker.register(b[1], log_dirs=[UUID(int=7)]).error_code,
        asker.register(b[1], log_dirs=[asker.directories[b[0]]]).error_code,
        asker.register(b[1], log_dirs=[it := uuid4(), it]).error_code,
        asker.register(b[1], is_migrating_zk_broker=True).error_code,
    ]
    for name in CLAIMS:
        claims = {key: its for key, its in CLAIMS.items() if key != name}
        said.append((name, asker.register(b[2], claims=claims).error_code))
        asker.ask(ApiKey.UNREGISTER_BROKER, broker_id=b[2])
    for claim in ((7, 20), (0, 1), (1, 1)):
        name = "metadata.version" if claim[1] > 1 else "horolog.replication"
        said.append((claim, asker.register(b[3], claims={**CLAIMS, name: claim}).error_code))
        asker.ask(ApiKey.UNREGISTER_BROKER, broker_id=b[3])
    for version in (0, 1, 2, 3):
        said.append(
            asker.register_in(version, b[4]).error_code,
        )
        asker.ask(ApiKey.UNREGISTER_BROKER, broker_id=b[4])
    return said


@dialogue
def heartbeats(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    epoch = asker.register(b[0]).broker_epoch

    def beat(broker_id: int = b[0], **changed: Any) -> Any:
        answer = asker.heartbeat(broker_id, **changed)
        return (
            answer.error_code,
            answer.is_caught_up,
            answer.is_fenced,
            answer.should_shut_down,
        )

    return [
        beat(broker_epoch=epoch + 1),
        beat(broker_epoch=-1),
        beat(b[1]),
        beat(current_metadata_offset=-1, want_fence=True),
        beat(current_metadata_offset=epoch - 1),
        beat(current_metadata_offset=epoch),
        beat(current_metadata_offset=epoch - 1),
        beat(want_fence=True),
        beat(),
        beat(want_shut_down=True),
        beat(),
        beat(want_shut_down=True, want_fence=True),
        asker.register(b[0]).error_code,  # its session goes on
        asker.ask(ApiKey.UNREGISTER_BROKER, broker_id=b[0]).error_code,
        asker.ask(ApiKey.UNREGISTER_BROKER, broker_id=b[0]).error_code,
        beat(),
    ]


@dialogue
def proposals(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    asker.join(b[0], b[1], b[2])
    topic = "proposals"
    asker.create(topic, [[b[0], b[1], b[2]]])
    asker.follow()
    one, two = asker.epochs[b[0]], asker.epochs[b[1]]
    said = [state(asker, topic)]

    def propose(by: int = 0, **changed: Any) -> None:
        said.append(shown(asker.alter(b[by], topic, **changed)))

    propose()
    propose(broker_epoch=one + 1)
    propose(leader_epoch=-1)
    propose(leader_epoch=9)
    propose(partition_epoch=-1)
    propose(partition_epoch=9)
    propose(1, isr=[b[0], b[1]])
    propose(isr=[b[1]])
    propose(isr=[])
    propose(isr=[b[0], b[0]])
    propose(isr=[b[0], b[5]])
    propose(isr=[b[0]], leader_recovery_state=1)
    propose(topic_id=uuid4())
    propose(partition_index=5)
    propose(isr=[b[0], (b[1], two - 1)])
    propose(isr=[b[0], (b[1], -1)])
    said.append(state(asker, topic))
    propose(isr=[b[0]])
    said.append(state(asker, topic))
    fence(asker, b[2])
    said.append(state(asker, topic))
    propose(isr=[b[0], b[1], b[2]])
    propose(isr=[b[0], b[1]])
    said.append(state(asker, topic))
    answer = asker.ask(
        ApiKey.ALTER_PARTITION,
        2,
        broker_id=b[0],
        broker_epoch=one,
        topics=[
            {
                "topic_id": asker.image.topics[topic].topic_id,
                "partitions": [
                    {
                        "partition_index": 0,
                        "leader_epoch": asker.image.topics[topic].partitions[0].leader_epoch,
                        "new_isr": [b[0]],
                        "leader_recovery_state": 0,
                        "partition_epoch": asker.image.topics[topic].partitions[0].partition_epoch,
                    }
                ],
            }
        ],
    )
    said.append(shown(answer.topics[0].partitions[0]))
    return said


@dialogue
def elections(asker: ControllerAsker) -> list[Any]:
    """Fencing, ELR with a minimum of two, and preferred and unclean elections."""
    b = Ids(asker)
    asker.join(b[0], b[1], b[2])
    topic = "elections"
    asker.create(topic, [[b[0], b[1], b[2]]], min_insync_replicas="2")
    said = [state(asker, topic)]

    def elect(kind: int) -> None:
        answer = asker.ask(
            ApiKey.ELECT_LEADERS,
            election_type=kind,
            topic_partitions=[{"topic": topic, "partitions": [0]}],
            timeout_ms=10_000,
        )
        said.append(answer.replica_election_results[0].partition_result[0].error_code)
        said.append(state(asker, topic))

    for number in (0, 1, 2):
        fence(asker, b[number])
        said.append(state(asker, topic))
    elect(1)
    asker.heartbeat(b[0])
    said.append(state(asker, topic))
    asker.heartbeat(b[1])
    said.append(state(asker, topic))
    elect(1)
    elect(0)
    asker.heartbeat(b[2])
    said.append(state(asker, topic))
    elect(0)
    leader = asker.image.topics[topic].partitions[0].leader
    said.append(shown(asker.alter(leader, topic, isr=[b[0], b[1], b[2]])))
    said.append(state(asker, topic))
    elect(0)
    elect(0)
    elect(1)
    return said


@dialogue
def elections_of_one(asker: ControllerAsker) -> list[Any]:
    """A topic of one replica: eligible while it is away."""
    b = Ids(asker)
    asker.join(b[0])
    topic = "elections-of-one"
    asker.create(topic, [[b[0]]])
    said = [state(asker, topic)]
    fence(asker, b[0])
    said.append(state(asker, topic))
    asker.heartbeat(b[0])
    said.append(state(asker, topic))
    return said


@dialogue
def unclean_settings(asker: ControllerAsker) -> list[Any]:
    """Unclean elections by a topic's setting."""
    b = Ids(asker)
    asker.join(b[0], b[1])
    topic = "unclean-settings"
    asker.create(topic, [[b[0], b[1]]], unclean_leader_election_enable="true")
    asker.follow()
    said = [shown(asker.alter(b[0], topic, isr=[b[0]])), state(asker, topic)]
    fence(asker, b[0])
    said.append(state(asker, topic))
    said.append(shown(asker.alter(b[1], topic, isr=[b[1]], leader_recovery_state=1)))
    said.append(shown(asker.alter(b[1], topic, isr=[b[1]], leader_recovery_state=0)))
    said.append(state(asker, topic))
    return said


@dialogue
def shutdowns(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    asker.join(b[0], b[1])
    topic = "shutdowns"
    asker.create(topic, [[b[0], b[1]], [b[1], b[0]]])
    asker.follow()
    said: list[Any] = []

    def beat(number: int, **changed: Any) -> None:
        answer = asker.heartbeat(b[number], **changed)
        said.append((answer.error_code, answer.is_fenced, answer.should_shut_down))

    beat(0, want_shut_down=True)
    said += [state(asker, topic, 0), state(asker, topic, 1)]
    said.append(asker.image.brokers[b[0]].in_controlled_shutdown)
    beat(0)
    beat(0, want_shut_down=True)
    said.append(asker.follow().brokers[b[0]].fenced)
    said.append(shown(asker.alter(b[1], topic, isr=[b[0], b[1]])))
    beat(0)
    return said


@dialogue
def reassignments(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    asker.join(b[0], b[1], b[2])
    topic = "reassignments"
    asker.create(topic, [[b[0], b[1]]])
    said: list[Any] = []

    def move(replicas: list[int] | None, name: str = topic) -> None:
        partition = {"partition_index": 0, "replicas": replicas}
        answer = asker.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            topics=[{"name": name, "partitions": [partition]}],
            timeout_ms=10_000,
        )
        said.append((answer.error_code, answer.responses[0].partitions[0].error_code))
        said.append(state(asker, topic))

    def ongoing() -> None:
        wanted = {"name": topic, "partition_indexes": [0]}
        answer = asker.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=[wanted], timeout_ms=10_000)
        for its in answer.topics:
            one = its.partitions[0]
            said.append((b.of(one.replicas), b.of(one.adding_replicas)))
        said.append(len(answer.topics))

    move(None)
    move([b[1], b[0]])  # another order only
    move([b[2], b[0]])
    ongoing()
    leader = asker.image.topics[topic].partitions[0].leader
    said.append(shown(asker.alter(leader, topic, isr=[b[0], b[1], b[2]])))
    said.append(state(asker, topic))
    ongoing()
    move([b[2], b[0], b[1]])
    move([b[1]])
    move(None)
    move([b[7]])
    move([])
    move([b[1], b[1]])
    move([b[1]], "nowhere")
    move([b[1]])
    leader = asker.image.topics[topic].partitions[0].leader
    isr = [*asker.image.topics[topic].partitions[0].isr, b[1]]
    said.append(shown(asker.alter(leader, topic, isr=sorted(set(isr)))))
    said.append(state(asker, topic))
    return said


@dialogue
def directories(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    more = [uuid4(), uuid4()]
    asker.join(b[0])
    assert not asker.register(b[1], log_dirs=more).error_code
    asker.heartbeat(b[1])
    asker.directories[b[2]], asker.directories[b[3]] = more
    topic = "directories"
    asker.create(topic, [[b[0], b[1]], [b[1], b[0]]])
    said = [state(asker, topic, 0), state(asker, topic, 1)]

    def assign(broker_id: int, directory: UUID, index: int = 0, **changed: Any) -> None:
        topic_id = changed.pop("topic_id", asker.image.topics[topic].topic_id)
        answer = asker.ask(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            broker_id=broker_id,
            broker_epoch=changed.pop("broker_epoch", asker.epochs.get(broker_id, 1)),
            directories=[
                {
                    "id_": directory,
                    "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": index}]}],
                }
            ],
        )
        inner = [
            partition.error_code
            for its in answer.directories
            for one in its.topics
            for partition in one.partitions
        ]
        said.append((answer.error_code, inner))
        said.append(state(asker, topic, 0))

    assign(b[1], more[1])
    assign(b[1], more[1], broker_epoch=1)
    assign(b[1], more[1], topic_id=uuid4())
    assign(b[1], more[1], 5)
    asker.join(b[4])
    assign(b[4], asker.directories[b[4]])
    assign(b[0], asker.directories[b[0]])
    asker.directories[b[5]] = uuid4()
    assign(b[0], asker.directories[b[5]])  # not one of its own
    said.append(state(asker, topic, 1))
    answer = asker.heartbeat(b[1], offline_log_dirs=[more[1]])
    said.append((answer.error_code, answer.is_fenced))
    said += [state(asker, topic, 0), state(asker, topic, 1)]
    said.append(len(asker.image.brokers[b[1]].log_dirs))
    return said


@dialogue
def cordons(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    asker.join(b[0], b[1])
    said: list[Any] = []
    asker.heartbeat(b[1], cordoned_log_dirs=[asker.directories[b[1]]])
    said.append(len(asker.follow().brokers[b[1]].cordoned or ()))
    said.append(asker.create("cordons", [[b[1]]]).error_code)
    asker.heartbeat(b[1])
    said.append(len(asker.follow().brokers[b[1]].cordoned or ()))
    asker.heartbeat(b[1], cordoned_log_dirs=[])
    said.append(len(asker.follow().brokers[b[1]].cordoned or ()))
    said.append(asker.create("cordons", [[b[1]]]).error_code)
    return said


@dialogue
def topics(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    asker.join(b[0], b[1])
    asker.register(b[2])

    def grow(name: str, count: int, replicas: list[list[int]] | None) -> int:
        lists = None if replicas is None else [{"broker_ids": its} for its in replicas]
        answer = asker.ask(
            ApiKey.CREATE_PARTITIONS,
            topics=[{"name": name, "count": count, "assignments": lists}],
            timeout_ms=10_000,
            validate_only=False,
        )
        return int(answer.results[0].error_code)

    def delete(**topic: Any) -> int:
        answer = asker.ask(
            ApiKey.DELETE_TOPICS,
            topics=[{"name": None, "topic_id": None, **topic}],
            timeout_ms=10_000,
        )
        return int(answer.responses[0].error_code)

    made = asker.create("topics", [[b[0], b[1]]])
    topic_id = asker.follow().topics["topics"].topic_id
    return [
        (made.error_code, made.num_partitions, made.replication_factor),
        asker.create("topics", [[b[0]]]).error_code,
        asker.create("topics-2", [[b[0], b[0]]]).error_code,
        asker.create("topics-2", [[b[9]]]).error_code,
        asker.create("topics-2", [[b[2]]]).error_code,
        asker.create("topics-2", [[]]).error_code,
        asker.create("topics-2", [[b[0]], [b[0], b[1]]]).error_code,
        asker.create("topics-2", [[b[0]]], no_such_setting="1").error_code,
        asker.create("topics-2", [[b[0]]], horolog_retention_by="append-time").error_code,
        asker.create("topics-2", [[b[2], b[1]]]).error_code,
        state(asker, "topics-2"),
        grow("topics", 1, None),
        grow("topics", 3, [[b[0], b[1]], [b[1], b[0]]]),
        state(asker, "topics", 2),
        grow("topics", 4, [[b[0]]]),
        grow("topics", 5, [[b[0], b[1]]]),
        grow("nowhere", 5, None),
        delete(name="nowhere"),
        delete(topic_id=uuid4()),
        delete(topic_id=topic_id),
        delete(name="topics-2"),
        sorted(it for it in asker.follow().topics if it.startswith("topics")),
    ]


@dialogue
def settings(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    asker.join(b[0], b[1])
    asker.create("settings", [[b[0], b[1]]])

    def alter(kind: int, name: str, key: str, value: str | None, operation: int = 0) -> int:
        resource = {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": operation, "value": value}],
        }
        answer = asker.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
        )
        return int(answer.responses[0].error_code)

    said: list[Any] = [
        alter(2, "settings", "retention.ms", "1000"),
        alter(2, "settings", "horolog.retention.by", "append-time"),
        alter(2, "nowhere", "retention.ms", "1000"),
        alter(4, "", "horolog.topic.settings.x", "1"),
        alter(4, str(b[0]), "horolog.x", "1"),
        alter(4, str(b[7]), "horolog.x", "1"),
        alter(2, "settings", "cleanup.policy", "compact", 2),
        alter(2, "settings", "cleanup.policy", "delete", 3),
        alter(2, "settings", "retention.ms", None, 1),
    ]
    image = asker.follow()
    said += [dict(image.settings_of(2, "settings")), image.settings_of(4, "").get("horolog.x")]
    asker.create("settings-2", [[b[0], b[1]]], min_insync_replicas="2")
    fence(asker, b[1])
    said.append(state(asker, "settings-2"))
    for value in ("2", "1", None):
        said.append(alter(2, "settings-2", "min.insync.replicas", value, int(value is None)))
        said.append(state(asker, "settings-2"))
    return said


@dialogue
def producer_ids(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    asker.join(b[0])
    epoch = asker.epochs[b[0]]
    answers = [
        asker.ask(ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=b[0], broker_epoch=its)
        for its in (epoch, epoch, epoch + 1)
    ]
    first = answers[0].producer_id_start
    return [
        (it.error_code, it.producer_id_start - first, it.producer_id_len) for it in answers[:2]
    ] + [answers[2].error_code]


@dialogue
def fetches(asker: ControllerAsker) -> list[Any]:
    asker.follow()
    epoch, end, last = asker.quorum_epoch, asker.next_offset, asker.last_epoch

    def fetch(version: int = 17, **changed: Any) -> Any:
        answer = asker.fetch(version, **changed)
        if answer.error_code:
            return (answer.error_code, len(answer.responses))
        one = answer.responses[0].partitions[0]
        return (
            one.error_code,
            bool(one.records),
            one.diverging_epoch.end_offset - end if one.diverging_epoch.epoch >= 0 else None,
            one.snapshot_id.end_offset,
            one.current_leader.leader_epoch - epoch,
            one.high_watermark >= 0,
            len(getattr(answer, "node_endpoints", ())),
        )

    return [
        fetch(),
        fetch(18),
        fetch(13),
        fetch(fetch_offset=0, last_fetched_epoch=0),
        fetch(last_fetched_epoch=-1),
        fetch(last_fetched_epoch=epoch + 1),
        fetch(cluster_id="x"),
        fetch(cluster_id=None),
        fetch(topic_id=uuid4()),
        fetch(current_leader_epoch=epoch - 1, last_fetched_epoch=0, fetch_offset=0),
        fetch(current_leader_epoch=epoch + 1, last_fetched_epoch=last),
        fetch(fetch_offset=end + 1000)[:2],
        fetch(fetch_offset=-1),
        fetch(current_leader_epoch=-1, last_fetched_epoch=0, fetch_offset=0),
    ]


@dialogue
def envelopes(asker: ControllerAsker) -> list[Any]:
    b = Ids(asker)
    asker.join(b[0])
    key, version = ApiKey.CREATE_TOPICS, 7
    topic = {
        "name": "envelopes",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [b[0]]}],
        "configs": [],
    }
    fine = asker.envelope(key, version, topics=[topic])
    correlation, position = parse_response_header(fine.response_data, key, version)
    inner = decode_response(key, version, fine.response_data, position)
    broken = {
        "request_data": b"\x00\x13\x00\x07\x00\x00\x00\x01\xff\xff\x00",
        "request_principal": b"\x00\x00\x05User\x06alice\x00\x00",
        "client_host_address": b"\x7f\x00\x00\x01",
    }
    return [
        (fine.error_code, correlation, inner.topics[0].error_code),
        asker.envelope(ApiKey.FETCH, 13).error_code,
        asker.envelope(key, version, b"", topics=[topic]).error_code,
        asker.envelope(key, version, b"\x00\x09", topics=[topic]).error_code,
        asker.ask(ApiKey.ENVELOPE, **broken).error_code,
    ]


@dialogue
def endpoints(asker: ControllerAsker) -> list[Any]:
    said: list[Any] = []
    for kind in (1, 2):
        answer = asker.ask(
            ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=kind, include_fenced_brokers=False
        )
        said.append((answer.error_code, answer.controller_id, len(answer.brokers)))
    answer = asker.ask(
        ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1"
    )
    wanted = (1, 19, 20, 37, 43, 44, 45, 46, 55, 56, 57, 58, 59, 60, 62, 63, 64, 67, 73)
    said.append(
        [
            (it.api_key, it.min_version, it.max_version)
            for it in answer.api_keys
            if it.api_key in wanted
        ]
    )
    said.append(sorted((it.name, it.max_version_level) for it in answer.finalized_features))
    return said
