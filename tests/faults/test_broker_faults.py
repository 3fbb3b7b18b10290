"""A broker whose disk is full, fails, is read-only or gone, or that may open few files.

A real `horolog serve`, asked by real clients: what cannot be taken is refused with
KAFKA_STORAGE_ERROR (56), which clients try again; what is there is served; and service
resumes by itself where that is safe. (Apache Kafka stops for good on any of these: it
counts on other replicas. Here there are none.)
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import UUID

import confluent_kafka
import pytest
from broker_nursery import BornBroker, Nursery
from patience import PATIENCE_S, eventually
from raw_connection import RawConnection, fetch_fields, produce_fields

from horolog.record import LogRecord, build_batch, iter_headers, read_records
from horolog.wire import ApiKey

STORAGE_ERROR = 56
NOT_COORDINATOR = 16


class Served:
    """A broker and what tests ask of it."""

    def __init__(self, nursery: Nursery, path: Path, dies: str | None = None, **limits: int):
        self.log_dir = path / "log"
        arguments = ["serve", "--port", "0", "--log-dir", str(self.log_dir)]
        self.process = BornBroker(nursery, path / "said", arguments, dies, **limits)
        address = self.process.await_ready()
        assert address is not None, self.process.said
        self.address = address

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.end()
        assert "Traceback" not in self.process.said, self.process.said

    def connect(self) -> RawConnection:
        return RawConnection(self.address, timeout_s=PATIENCE_S)

    def create(self, topic: str, partitions: int = 1, **configs: str) -> int:
        new = {
            "name": topic,
            "num_partitions": partitions,
            "configs": [{"name": n.replace("_", "."), "value": v} for n, v in configs.items()],
        }
        with self.connect() as connection:
            answer = connection.ask(ApiKey.CREATE_TOPICS, 7, topics=[new])
        return int(answer.topics[0].error_code)

    def put(self, topic: str, value: bytes = b"v", partition: int = 0) -> int:
        """Produce one record; its error code."""
        sent = build_batch([LogRecord(-1, None, value)])
        with self.connect() as connection:
            fields = produce_fields(topic, {partition: sent})
            answer = connection.ask(ApiKey.PRODUCE, 9, **fields)
        return int(answer.responses[0].partition_responses[0].error_code)

    def commit(self, topic: str) -> int:
        partition = {"partition_index": 0, "committed_offset": 1}
        with self.connect() as connection:
            answer = connection.ask(
                ApiKey.OFFSET_COMMIT,
                8,
                group_id="g",
                topics=[{"name": topic, "partitions": [partition]}],
            )
        return int(answer.topics[0].partitions[0].error_code)

    def fetch(self, topic: str, offset: int = 0) -> tuple[int, bytes]:
        with self.connect() as connection:
            answer = connection.ask(ApiKey.FETCH, 12, **fetch_fields(topic, {0: offset}))
        found = answer.responses[0].partitions[0]
        return int(found.error_code), bytes(found.records or b"")

    def values(self, topic: str) -> list[bytes]:
        """All records, by offset without a gap."""
        values: list[bytes] = []
        while True:
            code, data = self.fetch(topic, len(values))
            assert code == 0
            if not data:
                return values
            for position, header in iter_headers(data):
                for record in read_records(data[position : position + header.size]):
                    if record.offset >= len(values):
                        assert record.offset == len(values)
                        values.append(record.value or b"")


class Client:
    """A real idempotent producer, and what it was told."""

    def __init__(self, address: str) -> None:
        self.told: list[tuple[bytes, object]] = []
        self._sent = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 5,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def send(self, topic: str, count: int, size: int = 0) -> None:
        for _ in range(count):
            value = b"%d %s" % (self._sent, b"x" * size)
            self._producer.produce(topic, value, partition=0, on_delivery=self._on_delivery)
            self._sent += 1

    def _on_delivery(self, error: object, message: confluent_kafka.Message) -> None:
        self.told.append((message.value() or b"", error))

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """How many are still without an answer after that time."""
        return self._producer.flush(seconds)

    @property
    def acknowledged(self) -> list[bytes]:
        assert all(error is None for _, error in self.told), self.told[-1]
        return [value for value, _ in self.told]


# --- a full disk --------------------------------------------------------------------------


def test_a_full_disk_refuses_serves_reads_and_resumes(nursery: Nursery, tmp_path: Path) -> None:
    full = tmp_path / "full"
    with Served(nursery, tmp_path, f"full:{full}") as broker:
        assert broker.create("t", segment_bytes="3000", index_interval_bytes="0") == 0
        client = Client(broker.address)
        client.send("t", 100)
        assert client.wait() == 0
        full.touch()
        assert broker.put("t") == STORAGE_ERROR
        assert broker.create("u") == STORAGE_ERROR
        client.send("t", 100)
        assert client.wait(0.5) == 100
        assert broker.values("t") == client.acknowledged
        full.unlink()
        assert client.wait() == 0
        assert broker.values("t") == client.acknowledged
        assert len(client.acknowledged) == 200
        assert broker.create("u") == 0
        assert "No space left on device" not in broker.process.said.partition("ready")[0]
        assert broker.process.end(signal.SIGTERM) == 0
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()


@pytest.mark.soak
def test_a_file_system_that_is_really_full(nursery: Nursery, tmp_path: Path) -> None:
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(mounted)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system takes a privileged user")
    try:
        with Served(nursery, mounted) as broker:
            assert broker.create("t", segment_bytes="100000") == 0
            assert broker.create("other") == 0
            (mounted / "ballast").write_bytes(bytes(3 << 20))
            client = Client(broker.address)
            client.send("t", 6000, size=1000)
            assert eventually(lambda: broker.put("other", bytes(100_000)) == STORAGE_ERROR)
            assert client.wait(1) > 0
            values = broker.values("t")
            assert values[: len(client.acknowledged)] == client.acknowledged
            for _ in range(50):
                assert broker.commit("t") in (0, NOT_COORDINATOR)
            (mounted / "ballast").unlink()
            assert eventually(lambda: broker.put("other") == 0)
            assert eventually(lambda: broker.commit("t") == 0)
            assert broker.create("more") == 0
            subprocess.run(["mount", "-o", "remount,size=20m", str(mounted)], check=True)
            assert client.wait() == 0
            assert broker.values("t") == client.acknowledged
            assert len(client.acknowledged) == 6000
            assert broker.process.end(signal.SIGTERM) == 0
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)


@pytest.mark.soak
def test_a_kill_on_a_full_file_system_costs_no_read_and_topics_can_be_deleted(
    nursery: Nursery, tmp_path: Path
) -> None:
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(mounted)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system takes a privileged user")
    (mounted / "log").mkdir()
    (tmp_path / "log").symlink_to(mounted / "log")  # not what the broker says
    try:
        with Served(nursery, tmp_path) as broker:
            for topic in ("t", "other"):
                assert broker.create(topic, file_delete_delay_ms="0") == 0
                for number in range(20):
                    assert broker.put(topic, b"%d" % number * 1000) == 0
            values = broker.values("t")
            with suppress(OSError), (mounted / "ballast").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(512))
            assert eventually(lambda: broker.put("t", bytes(100_000)) == STORAGE_ERROR)
            broker.process.end(signal.SIGKILL)
        with Served(nursery, tmp_path) as broker:
            assert broker.values("t") == values
            assert broker.put("t", bytes(100_000)) == STORAGE_ERROR
            with broker.connect() as connection:
                name = {"name": "other", "topic_id": UUID(int=0)}
                answer = connection.ask(ApiKey.DELETE_TOPICS, 6, topics=[name])
            assert answer.responses[0].error_code == 0
            assert eventually(lambda: broker.put("t") == 0)
            assert broker.process.end(signal.SIGTERM) == 0
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)


# --- a disk that does not sync ------------------------------------------------------------


def test_a_disk_that_does_not_sync_takes_nothing_until_it_does(
    nursery: Nursery, tmp_path: Path
) -> None:
    fails = tmp_path / "fails"
    with Served(nursery, tmp_path, f"sync:{fails}") as broker:
        assert broker.create("t", flush_messages="1") == 0
        client = Client(broker.address)
        client.send("t", 20)
        assert client.wait() == 0
        fails.touch()
        assert broker.put("t", b"in the log, as in Kafka") == STORAGE_ERROR
        client.send("t", 20)
        assert client.wait(0.5) == 20
        assert (broker.log_dir / "t-0" / "sync-failed").exists()
        assert broker.fetch("t")[0] == 0
        fails.unlink()
        assert client.wait() == 0
        values = broker.values("t")
        values.remove(b"in the log, as in Kafka")
        assert values == client.acknowledged
        assert len(values) == 40
        assert not (broker.log_dir / "t-0" / "sync-failed").exists()


# --- a log directory that cannot be written to, or is gone ----------------------------------


@pytest.mark.skipif(
    os.getuid() == 0 and sys.platform != "linux", reason="root may write whatever the rights say"
)
def test_a_read_only_log_directory_is_one_sentence(nursery: Nursery, tmp_path: Path) -> None:
    with Served(nursery, tmp_path) as broker:
        assert broker.create("s") == 0
        assert broker.put("s") == 0
        assert broker.process.end(signal.SIGTERM) == 0
    inside = sorted(broker.log_dir.rglob("*"))
    for one in [broker.log_dir, *inside]:
        one.chmod(0o555 if one.is_dir() else 0o444)
    try:
        arguments = ["serve", "--port", "0", "--log-dir", str(broker.log_dir)]
        said = tmp_path / "said-again"
        process = BornBroker(nursery, said, arguments, powerless=os.getuid() == 0)
        assert process.await_ready() is None
        assert process.end() == 2
        assert process.said.strip().splitlines()[-1] == (
            f"horolog: log.dirs = {broker.log_dir} is not writable; "
            f"`horolog log inspect {broker.log_dir}` reads it as it is"
        )
        inspect = [sys.executable, "-m", "horolog", "log", "inspect", str(broker.log_dir)]
        seen = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout
        assert "s-0" in seen
        assert sorted(broker.log_dir.rglob("*")) == inside
    finally:
        for one in [broker.log_dir, *inside]:
            one.chmod(0o755)


def test_a_log_directory_that_goes_away_takes_nothing_more(
    nursery: Nursery, tmp_path: Path
) -> None:
    with Served(nursery, tmp_path) as broker:
        assert broker.create("t") == 0
        assert broker.put("t") == 0
        shutil.rmtree(broker.log_dir)
        assert eventually(lambda: broker.put("t") == STORAGE_ERROR)
        assert broker.commit("t") == NOT_COORDINATOR
        assert broker.create("u") == STORAGE_ERROR
        assert broker.fetch("t")[0] == STORAGE_ERROR
        assert "is gone; start again when it is back" in broker.process.said
        assert not broker.log_dir.exists()
        assert broker.process.end(signal.SIGTERM) == 0


# --- few open files -----------------------------------------------------------------------


def test_too_few_open_files_are_one_sentence(nursery: Nursery, tmp_path: Path) -> None:
    arguments = ["serve", "--port", "0", "--log-dir", str(tmp_path / "log")]
    process = BornBroker(nursery, tmp_path / "said", arguments, open_files=100)
    assert process.await_ready() is None
    assert process.end() == 2
    assert process.said.strip().splitlines()[-1] == (
        "horolog: this process may have 100 files open, and a broker needs 128 at least; raise "
        "the limit (ulimit -n)"
    )


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_few_open_files_serve_many_partitions_and_excess_connections_are_closed(
    nursery: Nursery, tmp_path: Path
) -> None:
    partitions, large = 100, 20_000  # which an answer does not copy
    with Served(nursery, tmp_path, open_files=160) as broker, ExitStack() as stack:
        assert broker.create("t", partitions) == 0
        assert broker.create("t0") == 0
        first = stack.enter_context(broker.connect())
        crowd = [stack.enter_context(broker.connect()) for _ in range(120)]
        hung_up = 0
        for one in crowd:
            try:
                one.ask(ApiKey.API_VERSIONS, 0)
            except OSError:
                hung_up += 1
        assert 120 - 52 <= hung_up < 120
        for partition in range(partitions):
            sent = build_batch([LogRecord(-1, None, b"%d" % partition + bytes(large))])
            answer = first.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {partition: sent}))
            assert answer.responses[0].partition_responses[0].error_code == 0
        left, answers = set(range(partitions)), 0
        while left:
            fields = fetch_fields("t", dict.fromkeys(left, 0))
            answer = first.ask(ApiKey.FETCH, 12, **fields)
            before = len(left)
            for found in answer.responses[0].partitions:
                assert found.error_code == 0
                if found.records:
                    ((_, header),) = iter_headers(found.records)
                    (record,) = read_records(bytes(found.records)[: header.size])
                    assert record.value == b"%d" % found.partition_index + bytes(large)
                    left.remove(found.partition_index)
            assert before - len(left) >= 20 or not left
            answers += 1
        assert answers > 1
        held = os.listdir(f"/proc/{broker.process.pid}/fd")
        assert len(held) <= 160
        files = [os.readlink(f"/proc/{broker.process.pid}/fd/{fd}") for fd in held]
        assert sum("/t-" in path for path in files) <= 40 + 20
        for one in crowd:
            one.socket.close()
        assert eventually(lambda: _is_let_in(broker))
        assert "ulimit -n" in broker.process.said


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of another process is set")
def test_clients_wait_while_no_file_may_be_opened_and_the_others_are_served(
    nursery: Nursery, tmp_path: Path
) -> None:
    with Served(nursery, tmp_path) as broker, ExitStack() as stack:
        assert broker.create("t") == 0
        pid = broker.process.pid
        present = [stack.enter_context(broker.connect()) for _ in range(5)]
        sent = build_batch([LogRecord(-1, None, b"v")])
        for one in present:
            one.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: sent}))
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        late = [stack.enter_context(broker.connect()) for _ in range(30)]
        for one in late:
            one.send(ApiKey.METADATA, 12, topics=None)
        assert eventually(lambda: "clients wait to be connected" in broker.process.said)
        busy_s = _processor_seconds(pid)
        for _ in range(3):
            for one in present:
                answer = one.ask(ApiKey.PRODUCE, 9, **produce_fields("t", {0: sent}))
                assert answer.responses[0].partition_responses[0].error_code == 0
        assert late[0].is_silent(3)
        assert _processor_seconds(pid) - busy_s < 1.5, "it spins"
        present.pop().socket.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for one in late:
            assert one.receive()[1].topics
        assert broker.process.said.count("clients wait to be connected") == 1
        assert len(broker.values("t")) == 20


def _processor_seconds(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _is_let_in(broker: Served) -> bool:
    try:
        return broker.put("t0") == 0
    except OSError:
        return False
