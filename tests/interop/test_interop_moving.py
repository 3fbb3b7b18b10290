"""One directory, served by Apache Kafka and by horolog in turns (docs/moving-in-and-out.md)."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from bench import raw
from bench.sides import horolog
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from handing_over import complaints, logs_of, without_epochs
from moving import Seen, seen, strays
from patience import eventually
from raw_connection import RawConnection, produce_fields
from tools.golden import answers
from tools.golden.scenarios import QUIET
from tools.peers.kafka import BEFORE_NEWEST, CLUSTER_ID, LAST_WITH_OLD_FORMATS, NEWEST, Kafka

from horolog.client import Client, CommittedOffset, ResourceType
from horolog.clock import SystemClock
from horolog.errors import ErrorCode
from horolog.metadata import BROKER, KafkaForm, MetadataLog
from horolog.record import LogRecord, build_batch, iter_headers
from horolog.schemas.metadata import METADATA_VERSION, NEW_LOG_LEVEL, Config, FeatureLevel
from horolog.storage import Files, MetaProperties, kafka_uuid, write_meta_properties
from horolog.wire import ApiKey

HOUR_MS = 3_600_000
TURN_S = 300  # about 20 on an idle machine
KEEPS = {"retention.ms": "-1"}
TAKE_OVER = {"horolog.take.over": "true"}
GROUP, TRANSACTIONAL = "moving", "moving-transactions"
pytestmark = pytest.mark.timeout(1800)  # both brokers in up to six turns, with many tools each


class Work:
    """What is done with a broker between two moves; each turn leaves something to be found."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.times_ms: list[int] = []
        self.producer_ids: list[int] = []
        self.sent: list[tuple[bytes, int]] = []
        """The batches of one idempotent producer, and their offsets."""
        self.committed = 0
        self._t0_ms = SystemClock().now_ms() - HOUR_MS
        self._turn = 0
        self._logs: dict[str, bytes] = {}
        self._told: dict[str, dict[str, object]] = {}
        self._epochs: dict[str, int] = {}

    def do(self, bootstrap: str) -> Seen:
        """Change everything that can be changed; what the tools say then."""
        turn, topic = self._turn, f"made-{self._turn}"
        with Client(bootstrap) as client:
            if turn == 0:
                client.create_topics({"kept": 1}, configs=KEEPS)
            at_ms = self._t0_ms + turn * 60_000
            self.times_ms.append(at_ms + 5)
            client.create_topics({topic: 2}, configs={**KEEPS, "max.message.bytes": "777777"})
            for name in ("kept", topic):
                records = [LogRecord(at_ms + 10 * each, b"k%d" % each, b"v") for each in range(3)]
                client.produce(name, 0, build_batch(records))
            changes = {"retention.ms": str(30 * 24 * HOUR_MS + turn), "segment.ms": None}
            if turn == 0:
                changes["segment.ms"] = "7654321"
            client.alter_configs({(ResourceType.TOPIC, "kept"): changes})
            # Only now: an adopted topic is not changed before it has settings.
            grown = len(client.metadata(["kept"]).topics["kept"].partitions) + 1
            client.create_partitions({"kept": grown})
            self.committed += 1
            for group in (GROUP, f"{GROUP}-{turn}"):
                client.offset_commit(group, {("kept", 0): CommittedOffset(self.committed, "note")})
            if turn > 1:
                former = f"made-{turn - 2}"
                client.alter_configs({(ResourceType.TOPIC, former): {"retention.ms": "1"}})
                client.delete_topics([former])
            self.producer_ids.append(client.init_producer_id().id)
        self._produce_idempotently(bootstrap)
        self._turn += 1
        return self.note(bootstrap)

    def _produce_idempotently(self, bootstrap: str) -> None:
        """The last batch again, which is a duplicate, and the next one."""
        if self.sent:
            batch, offset = self.sent[-1]
            assert produce(bootstrap, "kept", batch) == (0, offset)
        now_ms = SystemClock().now_ms()
        batch = build_batch(
            [LogRecord(now_ms, b"i", b"%d" % each) for each in range(2)],
            producer_id=self.producer_ids[0],
            producer_epoch=0,
            base_sequence=2 * len(self.sent),
        )
        error, offset = produce(bootstrap, "kept", batch)
        assert error == 0
        self.sent.append((batch, offset))

    def note(self, bootstrap: str) -> Seen:
        """Remember the records and the logs; what the tools say."""
        self._told = told(bootstrap)
        self._logs = partition_logs(self.log_dir)
        self._epochs = epochs(bootstrap)
        return seen(bootstrap, self.times_ms[-2:])

    def check(
        self,
        bootstrap: str,
        before: Seen,
        only: Callable[[Seen], Seen] = lambda found: found,
        *,
        is_adopted: bool = False,
    ) -> None:
        """Another broker says the same as the one before, of the same bytes.

        No leader epoch goes back, but where horolog `is_adopted` beside a Kafka's metadata: they
        are that Kafka's to raise.
        """
        assert only(seen(bootstrap, self.times_ms[-2:])) == only(before)
        now = told(bootstrap)
        for name, was in self._told.items():
            assert without_epochs(now[name]) == without_epochs(was), name
        logs = partition_logs(self.log_dir)
        for name, data in self._logs.items():
            assert logs[name][: len(data)] == data, name
        assert strays(self.log_dir) == []
        if not is_adopted:
            led = epochs(bootstrap)
            # Partitions of internal topics that horolog had beside the directory are not here.
            fallen = [name for name, epoch in self._epochs.items() if led.get(name, epoch) < epoch]
            assert not fallen, (self._epochs, led)


def partition_logs(log_dir: Path) -> dict[str, bytes]:
    """The bytes of every log, but not of topics that are being deleted."""
    return {
        name: data
        for name, data in logs_of(log_dir).items()
        if not name.split("/")[0].endswith(("-delete", "-stray"))
    }


def epochs(bootstrap: str) -> dict[str, int]:
    """The leader epoch of each partition, as clients see it."""
    with Client(bootstrap) as client:
        topics = client.metadata().topics.items()
    return {
        f"{name}-{index}": -1 if its.leader_epoch is None else its.leader_epoch
        for name, topic in topics
        for index, its in topic.partitions.items()
    }


def internal_logs(log_dir: Path) -> dict[Path, bytes]:
    """The bytes of the logs of Kafka's own topics."""
    return {path: path.read_bytes() for path in sorted(log_dir.glob("__*/*.log"))}


def produce(bootstrap: str, topic: str, batch: bytes) -> tuple[int, int]:
    """Error code and base offset."""
    with RawConnection(bootstrap) as connection:
        answer = connection.ask(ApiKey.PRODUCE, 9, **produce_fields(topic, {0: batch}, acks=-1))
    its = answer.responses[0].partition_responses[0]
    return int(its.error_code), int(its.base_offset)


def against_ours(kafka: Kafka, since: int) -> list[str]:
    """What Kafka logs against the files that it found.

    Not of partitions that it makes; nor that it stopped loading groups, which it does where it
    leads in a later epoch before it has loaded them: on a busy machine at its own start.
    """
    said = kafka.output.read_text(errors="replace")[since:].splitlines()
    found = [line for line in said if "truncation of conflicting entries" in line]  # epochs
    return found + [
        line
        for line in complaints(kafka, since)
        if "it was missing. Creating" not in line and "Stopped loading records" not in line
    ]


def told(bootstrap: str) -> dict[str, dict[str, object]]:
    """Records, offsets and lookups by time of each partition, by librdkafka."""
    with Client(bootstrap) as client:
        topics = client.metadata().topics.items()
    return {
        f"{name}-{partition}": answers.of_partition(bootstrap, name, partition, lookups=12)
        for name, topic in topics
        if not name.startswith("__")
        for partition in topic.partitions
    }


def transact(bootstrap: str, topic: str, offset: int) -> None:
    """One committed and one aborted transaction, each with an offset of a group."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "moving", **QUIET})
    producer.init_transactions(60)
    with Client(bootstrap) as client:
        client.offset_commit(TRANSACTIONAL, {(topic, 0): CommittedOffset(0)})
    from confluent_kafka import Consumer  # noqa: PLC0415 - only for its group's metadata

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": TRANSACTIONAL, **QUIET})
    for end, committed in ((producer.commit_transaction, offset), (producer.abort_transaction, 99)):
        producer.begin_transaction()
        producer.produce(topic, key=b"t", value=str(committed).encode(), partition=0)
        producer.send_offsets_to_transaction(
            [At(topic, 0, committed)], consumer.consumer_group_metadata(), 60
        )
        end(60)
    consumer.close()
    with Client(bootstrap) as client:  # markers come after the answer
        at = {(topic, 0): -1}
        assert eventually(
            lambda: client.list_offsets(at, read_committed=True) == client.list_offsets(at)
        )


@contextmanager
def ours(directory: Path, settings: dict[str, str], *, killed: bool) -> Iterator[str]:
    """A horolog; the address."""
    with horolog({"log.retention.check.interval.ms": "500", **settings}, directory) as side:
        with turn("horolog", side.pid):
            yield side.bootstrap
        if killed:
            side.kill()


@contextmanager
def theirs(kafka: Kafka, *, killed: bool) -> Iterator[str]:
    """An Apache Kafka; the address."""
    with kafka:
        with turn(f"Kafka {kafka.version}", kafka.pid):
            yield kafka.bootstrap
        if killed:
            kafka.kill()


@contextmanager
def turn(name: str, pid: int) -> Iterator[None]:
    """Fail what waits for a broker too long: the broker is killed, and nothing waits for it then.

    Its start, its stop and each tool have bounds of their own.
    """
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(TURN_S, end)
    timer.start()
    try:
        yield
    except Exception as error:
        if is_over.is_set():
            pytest.fail(f"The turn of {name} was not over after {TURN_S} s: {error}")
        raise
    finally:
        timer.cancel()


def without_groups(found: Seen) -> Seen:
    """What a broker says of all but groups, and of the topic that they are kept in."""
    topics = {name: its for name, its in found.topics.items() if not name.startswith("__")}
    return found._replace(topics=topics, committed={})


def without_settings(found: Seen) -> Seen:
    """The same, without settings either."""
    return without_groups(found)._replace(settings={})


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("peer", [NEWEST, BEFORE_NEWEST])
def test_kafka_serves_what_was_made_here(peer: str, killed: bool, tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, peer=peer)
    work = Work(kafka.log_dir)
    with ours(tmp_path, {}, killed=killed) as bootstrap:
        work.do(bootstrap)
        before = work.do(bootstrap)
    with theirs(kafka, killed=killed) as bootstrap:
        work.check(bootstrap, before, only=without_groups)
        work.do(bootstrap)
        assert strays(kafka.log_dir) == []
    if not killed:
        assert against_ours(kafka, 0) == []
    assert len({*work.producer_ids}) == len(work.producer_ids)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("peer", [NEWEST, LAST_WITH_OLD_FORMATS])
def test_kafka_knows_what_was_changed_in_its_directory(
    peer: str, killed: bool, tmp_path: Path
) -> None:
    kafka = Kafka(tmp_path, peer=peer)
    work = Work(kafka.log_dir)
    with theirs(kafka, killed=killed) as bootstrap:
        work.do(bootstrap)
        transact(bootstrap, "kept", 2)
        before = work.note(bootstrap)
    own = internal_logs(kafka.log_dir)
    with ours(tmp_path, {}, killed=killed) as bootstrap:
        # Settings of adopted topics are obeyed, and not shown as their own.
        work.check(bootstrap, before, only=without_settings, is_adopted=True)
        work.do(bootstrap)
        before = work.do(bootstrap)
    assert internal_logs(kafka.log_dir) == own
    with ours(tmp_path, TAKE_OVER, killed=killed):
        pass
    said = kafka.output.stat().st_size
    with theirs(kafka, killed=killed) as bootstrap:
        work.check(bootstrap, before, only=without_groups)
        work.do(bootstrap)
    if not killed:
        assert against_ours(kafka, said) == []
    assert len({*work.producer_ids}) == len(work.producer_ids)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("peer", [NEWEST, BEFORE_NEWEST, LAST_WITH_OLD_FORMATS])
def test_a_directory_of_kafka_moves_in_and_out_again(
    peer: str, killed: bool, tmp_path: Path
) -> None:
    kafka = Kafka(tmp_path, peer=peer)
    work = Work(kafka.log_dir)
    with theirs(kafka, killed=killed) as bootstrap:
        work.do(bootstrap)
        transact(bootstrap, "kept", 2)
        before = work.note(bootstrap)
    assert before.committed[f"{TRANSACTIONAL} kept-0"] == 2
    transactions = {
        path: path.read_bytes() for path in kafka.log_dir.glob("__transaction_state-*/*.log")
    }
    assert transactions
    for settings in (TAKE_OVER, {}):
        with ours(tmp_path, settings, killed=killed) as bootstrap:
            work.check(bootstrap, before)
            before = work.do(bootstrap)
        assert {path: path.read_bytes() for path in transactions} == transactions
        said = kafka.output.stat().st_size
        with theirs(kafka, killed=killed) as bootstrap:
            work.check(bootstrap, before)
            before = work.do(bootstrap)
            if not killed:
                assert against_ours(kafka, said) == []
        transactions = {path: path.read_bytes() for path in transactions}
    with ours(tmp_path, {}, killed=killed) as bootstrap:
        work.check(bootstrap, before)
    assert len({*work.producer_ids}) == len(work.producer_ids)


@pytest.mark.parametrize("is_damaged", [False, True], ids=["lost", "damaged"])
def test_kafka_serves_a_directory_whose_meta_properties_was_written_again(
    is_damaged: bool, tmp_path: Path
) -> None:
    """With another directory id it finds no leader for the topics, for ever."""
    kafka = Kafka(tmp_path)
    work = Work(kafka.log_dir)
    with ours(tmp_path, {}, killed=False) as bootstrap:
        before = work.do(bootstrap)
    properties = kafka.log_dir / "meta.properties"
    ids = sorted(line for line in properties.read_text().splitlines() if ".id=" in line)
    properties.write_bytes(bytes(80)) if is_damaged else properties.unlink()
    with ours(tmp_path, {}, killed=False) as bootstrap:
        work.check(bootstrap, before)
        before = work.note(bootstrap)
    again = sorted(line for line in properties.read_text().splitlines() if ".id=" in line)
    assert again == ids
    with theirs(kafka, killed=False) as bootstrap:
        work.check(bootstrap, before)
        work.do(bootstrap)
        assert against_ours(kafka, 0) == []


def epochs_of_batches(log_dir: Path, topic: str) -> list[int]:
    """The leader epoch of each batch of the first partition, in order."""
    (log,) = (log_dir / f"{topic}-0").glob("*.log")
    return [header.leader_epoch for _, header in iter_headers(log.read_bytes())]


def recorded_epoch(log_dir: Path, topic: str) -> int:
    """The leader epoch of the first partition in the metadata."""
    image = KafkaForm(Files(read_only=True), str(log_dir)).replay().image
    return int(image.topics[topic].partitions[0].leader_epoch)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_each_broker_writes_in_leader_epochs_of_its_own(killed: bool, tmp_path: Path) -> None:
    """An epoch has one leader (KIP-101), so that no two logs differ within one."""
    kafka = Kafka(tmp_path)

    def append(bootstrap: str, values: list[bytes]) -> None:
        with Client(bootstrap) as client:
            records = [LogRecord(SystemClock().now_ms(), b"k", value) for value in values]
            client.produce("kept", 0, build_batch(records))

    with theirs(kafka, killed=killed) as bootstrap:
        with Client(bootstrap) as client:
            client.create_topics({"kept": 1, "empty": 1}, configs=KEEPS)
        append(bootstrap, [b"by Kafka"])
    by_kafka, values = epochs_of_batches(kafka.log_dir, "kept"), ["by Kafka"]
    for number in range(2):  # taken over, and after another turn of Kafka's
        before = {topic: recorded_epoch(kafka.log_dir, topic) for topic in ("kept", "empty")}
        with ours(tmp_path, TAKE_OVER if not number else {}, killed=killed) as bootstrap:
            append(bootstrap, [b"by horolog"])
            for topic, epoch in before.items():
                assert epochs(bootstrap)[f"{topic}-0"] > epoch, topic
                assert recorded_epoch(kafka.log_dir, topic) > epoch, topic
        by_horolog = epochs_of_batches(kafka.log_dir, "kept")[-1]
        assert by_horolog > before["kept"] >= by_kafka[-1]
        said = kafka.output.stat().st_size
        with theirs(kafka, killed=killed) as bootstrap:
            append(bootstrap, [b"by Kafka"])
            values += ["by horolog", "by Kafka"]
            found = answers.of_partition(bootstrap, "kept", 0)
            assert [each[3] for each in found["records"]] == values
            if not killed:
                assert against_ours(kafka, said) == []
        by_kafka = epochs_of_batches(kafka.log_dir, "kept")
        assert by_kafka[-1] > by_horolog


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_kafka_opens_a_directory_that_was_made_here(killed: bool, tmp_path: Path) -> None:
    kafka = Kafka(tmp_path)
    work = Work(kafka.log_dir)
    with ours(tmp_path, {}, killed=killed) as bootstrap:
        work.do(bootstrap)
        before = work.do(bootstrap)
    for _ in range(2):
        said = kafka.output.stat().st_size if kafka.output.exists() else 0
        with theirs(kafka, killed=killed) as bootstrap:
            work.check(bootstrap, before)
            before = work.do(bootstrap)
            if not killed:
                assert against_ours(kafka, said) == []
        with ours(tmp_path, {}, killed=killed) as bootstrap:
            work.check(bootstrap, before)
            before = work.do(bootstrap)
    assert len({*work.producer_ids}) == len(work.producer_ids)


def heartbeat_error(bootstrap: str) -> int:
    """What a member of the consumer protocol is told that joins."""
    with raw.Connection(bootstrap) as connection:
        try:
            asked = raw.joining_request("group", "member", ["t"])
            raw.beaten(connection.ask(raw.CONSUMER_HEARTBEAT, asked))
        except raw.Refused as refused:
            return refused.code
    return ErrorCode.none


@pytest.mark.parametrize("by_kafka", [False, True], ids=["horolog", "Kafka"])
def test_an_earlier_directory_gets_consumer_groups_unless_a_kafka_was_there(
    by_kafka: bool, tmp_path: Path
) -> None:
    kafka = Kafka(tmp_path, format_arguments=("--feature", "group.version=0"))
    if by_kafka:
        with theirs(kafka, killed=False):
            pass
    else:
        kafka.log_dir.mkdir()
        meta = MetaProperties(CLUSTER_ID, 1, kafka_uuid(uuid4()), {})
        write_meta_properties(Files(), str(kafka.log_dir / "meta.properties"), meta)
        log = MetadataLog.open(Files(), str(kafka.log_dir), node_id=1)
        level = FeatureLevel(METADATA_VERSION, NEW_LOG_LEVEL)
        log.append([level, Config(BROKER, "", "horolog.state.home", "own")], 0)
        log.close()
    wanted = ErrorCode.unsupported_version if by_kafka else ErrorCode.none
    with ours(tmp_path, TAKE_OVER if by_kafka else {}, killed=False) as bootstrap:
        assert eventually(lambda: heartbeat_error(bootstrap) == wanted)  # loaded
    with theirs(kafka, killed=False) as bootstrap:
        assert eventually(lambda: heartbeat_error(bootstrap) == wanted)  # loaded


def test_a_group_keeps_its_assignment_where_both_brokers_are_in_one_rack(tmp_path: Path) -> None:
    """Else its topics have another hash, and all members are assigned anew."""
    rack = {"broker.rack": "rack-1"}
    kafka = Kafka(tmp_path, settings=rack)

    def epoch(bootstrap: str, body: bytes) -> int:
        with raw.Connection(bootstrap) as connection:
            return raw.beaten(connection.ask(raw.CONSUMER_HEARTBEAT, body)).epoch

    with theirs(kafka, killed=False) as bootstrap:
        with Client(bootstrap) as client:
            client.create_topics({"t": 3})
            client.offset_commit("group", {("t", 0): CommittedOffset(1)})
        assert epoch(bootstrap, raw.joining_request("group", "member", ["t"])) == 2
    stays = raw.heartbeat_request("group", "member", 2)
    with ours(tmp_path, {**rack, **TAKE_OVER}, killed=False) as bootstrap:
        assert [epoch(bootstrap, stays) for _ in range(2)] == [2, 2]
    with ours(tmp_path, {}, killed=False) as bootstrap:  # without a rack
        assert epoch(bootstrap, stays) == 3
