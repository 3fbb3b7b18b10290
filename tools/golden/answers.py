"""What a real Kafka answers about a log directory: its records, its batches, its offsets by time.

Records come from librdkafka; batches, snapshots and aborted transactions from Kafka's own dump
tool; offsets from the running broker: nothing here is read with our own decoder.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tools.golden.scenarios import PATIENCE_S, QUIET
from tools.peers.kafka import dump

LONGEST_TEXT = 64
LOOKUPS_PER_PARTITION = 160
LARGEST = 2**63 - 1


def of_partition(
    bootstrap: str, topic: str, partition: int, *, lookups: int = LOOKUPS_PER_PARTITION
) -> dict[str, Any]:
    """Records and offsets of one partition, and about so many lookups by time."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    at = TopicPartition(topic, partition)
    earliest = _offset(admin, at, OffsetSpec.earliest())
    latest = _offset(admin, at, OffsetSpec.latest())
    stable = _offset(admin, at, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    largest = _offset(admin, at, OffsetSpec.max_timestamp())
    records = _records(bootstrap, at, "read_uncommitted", latest[0])
    committed = [row[0] for row in _records(bootstrap, at, "read_committed", stable[0])]
    return {
        "log_start_offset": earliest[0],
        "earliest": earliest,
        "latest": latest,
        "last_stable_offset": stable[0],
        "max_timestamp": largest,
        "records": records,
        "committed_offsets": None if committed == [row[0] for row in records] else committed,
        "lookups": [
            [at_ms, *_offset(admin, at, OffsetSpec.for_timestamp(at_ms))]
            for at_ms in _times((row[1] for row in records), lookups)
        ],
    }


def _offset(
    admin: AdminClient,
    at: TopicPartition,
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> list[Any]:
    """Offset, timestamp and leader epoch, -1 each where there is none; or "error" and its code."""
    for pause in (0.1, 0.3, 1, 3, 6, None):
        try:
            asked = admin.list_offsets(
                {at: spec}, isolation_level=isolation, request_timeout=PATIENCE_S
            )
            found = asked[at].result()
            break
        except KafkaException as refused:  # a leader that has just started
            if refused.args[0].code() == KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                return ["error", refused.args[0].code()]
            if pause is None or not refused.args[0].retriable():
                raise
            time.sleep(pause)
    epoch = -1 if found.leader_epoch is None else found.leader_epoch
    return [found.offset, found.timestamp, epoch]


def _times(timestamps: Iterable[int], most: int) -> list[int]:
    """The times to ask for: every record's, its neighbours, the ends; a spread when many."""
    known = sorted({at for at in timestamps if at >= 0})
    around = sorted({min(max(at + step, 0), LARGEST) for at in known for step in (-1, 0, 1)})
    if len(around) > most:
        step = -(-len(around) // most)
        around = sorted({*around[::step], *around[-6:], *around[:3]})
    return sorted({0, 1, *around, LARGEST})


def _records(bootstrap: str, at: TopicPartition, isolation: str, end: int) -> list[list[Any]]:
    """Every record below `end`: offset, timestamp, key, value, and headers where there are any."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "golden",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(at.topic, at.partition, 0)])
    rows: list[list[Any]] = []
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"no end of {at.topic}-{at.partition}"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return rows
            assert message.offset() < end, (message.topic(), message.offset(), end)
            row = [
                message.offset(),
                message.timestamp()[1],
                text(message.key()),
                text(message.value()),
            ]
            if message.headers():
                row.append([[name, text(value)] for name, value in message.headers()])
            rows.append(row)
    finally:
        consumer.close()


def text(data: bytes | None) -> str | None:
    """Bytes as a short text that tells them apart: themselves, or "hex:..." or "sha256:..."."""
    if data is None:
        return None
    if len(data) > LONGEST_TEXT:
        return "sha256:" + hashlib.sha256(data).hexdigest()
    if data.isascii() and all(32 <= byte < 127 for byte in data):
        return data.decode()
    return "hex:" + data.hex()


# --- the dump tool -------------------------------------------------------------------------------

BATCH = re.compile(
    r"baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<base_sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+) "
    r"producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<leader_epoch>-?\d+) isTransactional: (?P<is_transactional>\w+) "
    r"isControl: (?P<is_control>\w+) deleteHorizonMs: (?P<delete_horizon_ms>\S+) "
    r"position: (?P<position>\d+) (?P<timestamp_type>\w+): (?P<max_timestamp>-?\d+) "
    r"size: (?P<size>\d+) magic: (?P<magic>\d+) "
    r"compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) isvalid: true"
)
COLUMNS = tuple(BATCH.groupindex)  # in the order of a batch's row
NUMBERS = {*COLUMNS} - {
    "timestamp_type",
    "codec",
    "is_transactional",
    "is_control",
    "delete_horizon_ms",
}
COMPLAINTS = (
    "mismatch",
    "not found",
    "out of order",
    "duplicate",
    "Exception",
    "isvalid: false",
    "Found",
)


def of_files(log_dir: Path, *, peer: str) -> dict[str, dict[str, list[Any]]]:
    """What the dump tool says of every partition's files: batches, snapshots, aborted transactions.

    It complains about no index, or this fails.
    """
    logs = sorted(log_dir.glob("*/*.log"))
    others = [*sorted(log_dir.glob("*/*.snapshot")), *sorted(log_dir.glob("*/*.txnindex"))]
    # An empty log with an untrimmed index makes the tool itself fail; nothing is learnt there.
    indexes = [
        index
        for index in [*sorted(log_dir.glob("*/*.index")), *sorted(log_dir.glob("*/*.timeindex"))]
        if index.with_suffix(".log").stat().st_size > 0
    ]
    said = {str(log_dir): dump(indexes, peer=peer)}
    for line in said[str(log_dir)].splitlines():
        assert not any(complaint in line for complaint in COMPLAINTS), line
    answers: dict[str, dict[str, list[Any]]] = {}
    for path, lines in _by_file(dump([*logs, *others], peer=peer)).items():
        answers.setdefault(path.parent.name, {})[path.name] = _understood(path, lines)
    return answers


def _by_file(said: str) -> Mapping[Path, list[str]]:
    files: dict[Path, list[str]] = {}
    for line in said.splitlines():
        if line.startswith("Dumping "):
            files[Path(line.removeprefix("Dumping "))] = current = []
        elif line and not line.startswith(("Log starting offset", "Snapshot end offset")):
            current.append(line)
    return files


def _understood(path: Path, lines: list[str]) -> list[Any]:
    if path.suffix != ".log" or path.parent.name.startswith("__cluster_metadata"):
        return lines
    rows = []
    for line in lines:
        found = BATCH.fullmatch(line.strip())
        if found is None:
            rows.append(line)  # an old format's line, kept as it is
            continue
        rows.append([_value(name, found[name]) for name in COLUMNS])
    return rows


def _value(name: str, said: str) -> Any:
    if name in NUMBERS:
        return int(said)
    if said in {"true", "false"}:
        return said == "true"
    if name == "delete_horizon_ms":
        number = re.search(r"\d+", said)
        return None if number is None else int(number[0])
    return said
