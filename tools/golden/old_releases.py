"""Log directories that releases of Apache Kafka from 2016 to 2021 wrote, under a ZooKeeper.

Their own console producer writes the topics and their own dump tool says what is in them: no client
of today speaks to all of them. `make .peers/old/kafka-RELEASE/.complete` fetches a release.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools.peers.kafka import PEERS, NoPeer, PeerFailed, free_port

OLD_PEERS = PEERS / "old"
_PATIENCE_S = 120.0
_CODECS = ("none", "gzip", "snappy", "lz4")
# Java from 9 on reports a version that old releases cannot parse, and hides what they look into.
_JVM = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
_LOG4J = """log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%p %m (%c)%n
"""


KEYED_LINES = (
    *("--property", "parse.key=true", "--property", "key.separator=:"),
    *("--producer-property", "linger.ms=300"),
)
"""How console producers read lines of `key:value`, and send them in batches."""


class Release(NamedTuple):
    """One release and the topics that it writes, each with the settings it is made with."""

    version: str
    topics: Mapping[str, Mapping[str, str]]


_PLAIN = {f"{codec}": {} for codec in _CODECS}
_APPEND_TIME = {"append-time-gzip": {"message.timestamp.type": "LogAppendTime"}}
RELEASES = (
    Release("0.9.0.1", _PLAIN),
    Release("0.10.0.1", _PLAIN | _APPEND_TIME),
    Release("0.10.2.2", _PLAIN | _APPEND_TIME | {"v0-gzip": {"message.format.version": "0.9.0"}}),
    Release(
        "0.11.0.3",
        _PLAIN
        | {
            "v1-lz4": {"message.format.version": "0.10.2"},
            "v0-lz4": {"message.format.version": "0.9.0"},
        },
    ),
    Release(
        "2.8.2",
        {
            "none": {},
            "v1-snappy": {"message.format.version": "0.10.2"},
            "v0-none": {"message.format.version": "0.9.0"},
        },
    ),
)


class OldKafka:
    """One broker of an old release."""

    def __init__(self, release: Release, directory: Path, zookeeper: str) -> None:
        self.release = release
        self.log_dir = directory / "data"
        self._directory = directory
        self._zookeeper = f"{zookeeper}/{release.version}"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Started, and stopped cleanly."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "server.properties"
        config.write_text(
            f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{self._port}\n"
            f"log.dirs={self.log_dir}\nzookeeper.connect={self._zookeeper}\n"
            "zookeeper.connection.timeout.ms=60000\nlog.index.interval.bytes=200\n"
            "log.segment.bytes=20000\nlog.index.size.max.bytes=4096\n"
            "log.cleaner.dedupe.buffer.size=2097152\noffsets.topic.num.partitions=1\n"
            "offsets.topic.replication.factor=1\nlog.retention.hours=-1\n"
        )
        self._run_broker(config)
        try:
            yield
        finally:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(_PATIENCE_S)

    def _run_broker(self, config: Path) -> None:
        with (self._directory / "kafka.out").open("ab") as output:
            self._process = subprocess.Popen(
                _java(self.release.version, self._directory, "kafka.Kafka", str(config)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        said = (self._directory / "kafka.out").read_text(errors="replace")[-4000:]
        raise PeerFailed(f"Kafka {self.release.version} did not start:\n{said}")

    def create(self, topic: str, settings: Mapping[str, str]) -> None:
        """Make a topic of one partition."""
        pairs = [f"{name}={value}" for name, value in settings.items()]
        config = [part for pair in pairs for part in ("--config", pair)]
        one = ("--partitions", "1", "--replication-factor", "1")
        arguments = ("--zookeeper", self._zookeeper, "--create", "--topic", topic, *one, *config)
        self._tool("kafka.admin.TopicCommand", *arguments)

    def produce(self, topic: str, codec: str, lines: Sequence[str]) -> None:
        """Send lines of `key:value`."""
        bootstrap = f"127.0.0.1:{self._port}"
        produce(self.release.version, self._directory, bootstrap, topic, codec, lines)

    def dump(self, logs: Sequence[Path]) -> str:
        """What its dump tool says of files, record by record."""
        arguments = ("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, logs)))
        return self._tool("kafka.tools.DumpLogSegments", *arguments)

    def _tool(self, name: str, *arguments: str) -> str:
        return run_tool(self.release.version, self._directory, name, *arguments)


def produce(
    version: str, directory: Path, bootstrap: str, topic: str, codec: str, lines: Sequence[str]
) -> None:
    """Send lines of `key:value` with the console producer of a release."""
    arguments = ("--broker-list", bootstrap, "--topic", topic, *codec_arguments(codec))
    run_tool(
        version,
        directory,
        "kafka.tools.ConsoleProducer",
        *arguments,
        *KEYED_LINES,
        stdin="".join(f"{line}\n" for line in lines).encode(),
    )


def codec_arguments(codec: str) -> list[str]:
    """With which a console producer compresses."""
    return ["--compression-codec", codec] if codec != "none" else []


def run_tool(version: str, directory: Path, name: str, *arguments: str, stdin: bytes = b"") -> str:
    """What a tool of a release says; its logging is set up in this directory."""
    done = subprocess.run(
        _java(version, directory, name, *arguments),
        input=stdin,
        capture_output=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace")[-4000:]
        raise PeerFailed(f"{name} {' '.join(arguments)} ended with {done.returncode}:\n{said}")
    return done.stdout.decode()


def _java(version: str, directory: Path, main_class: str, *arguments: str) -> list[str]:
    jars = OLD_PEERS / f"kafka-{version}"
    if not list(jars.glob("*.jar")):
        target = jars.relative_to(PEERS.parent) / ".complete"
        raise NoPeer(f"no peer in {jars}: run `make {target}`")
    log4j = directory / "log4j.properties"
    log4j.write_text(_LOG4J)
    return [
        "java",
        *_JVM,
        f"-Dlog4j.configuration=file:{log4j}",
        "-cp",
        str(jars / "*"),
        main_class,
        *arguments,
    ]


_RECORD = re.compile(r"^(?:\| )?offset: (\d+) .* key: (\S*) payload: (.*)$", re.MULTILINE)
_TIME = re.compile(r"(CreateTime|LogAppendTime): (-?\d+)")


def records_in(said: str) -> Iterator[list[Any]]:
    """Offset, type of the timestamp and it, key and value of each record in a dump."""
    for found in _RECORD.finditer(said):
        offset, key, value = found.groups()
        time_of = _TIME.search(found.group())
        kind, ms = (time_of[1], int(time_of[2])) if time_of else (None, None)
        yield [int(offset), kind, ms, key, value]


def lines_of(run: int) -> list[str]:
    """What is sent in one run of a producer."""
    return [
        f"key-{number % 7}:run {run} number {number} " + "tick" * (number % 5)
        for number in range(40)
    ]


def write(release: Release, directory: Path, zookeeper: str) -> tuple[Path, dict[str, Any]]:
    """The log directory that a release leaves, and what its dump tool says of each topic."""
    kafka = OldKafka(release, directory, zookeeper)
    with kafka.running():
        for topic, settings in release.topics.items():
            print(f"  {release.version} {topic}", flush=True)
            kafka.create(topic, settings)
            time.sleep(1)  # its producers give up on a partition that has no leader yet
            codec = topic.rpartition("-")[2]
            for run in range(3):
                kafka.produce(topic, codec, lines_of(run))
    told = {}
    for topic, settings in release.topics.items():
        logs = sorted((kafka.log_dir / f"{topic}-0").glob("*.log"))
        said = kafka.dump(logs)
        told[f"{release.version}/{topic}-0"] = {
            "config": dict(settings),
            "records": list(records_in(said)),
        }
    return kafka.log_dir, told
