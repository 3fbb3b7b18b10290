"""What does it cost a broker to convert record formats? Kafka 3.9 is the last that does.

Both obey message.format.version, with an inter-broker protocol of 2.8; Kafka under a ZooKeeper.
Batches of v2 are produced to a topic that stores v1, and what is stored in v2 is fetched by a
client that reads v1 (Fetch 2). Records of 100 bytes, in batches of 2,000. CPU of the broker says
more than the time on a machine that others use.
"""

import contextlib
import itertools
import random
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from bench import harness, raw
from bench.sides import HOROLOG, KAFKA, Side, horolog
from tools.peers.kafka import JVM_FLAGS, LAST_WITH_OLD_FORMATS, Kafka, NoPeer, jars, zookeeper

from horolog.client import Client
from horolog.errors import HorologError
from horolog.record.batch import iter_headers, parse_header
from horolog.record.builder import LogRecord, build_batch
from horolog.record.compression import Codec
from horolog.record.kernels.loading import PLAIN_KERNELS
from horolog.record.old_format.plain import list_all

SIZE, PER_BATCH = 100, 2_000
PROTOCOL = {"inter.broker.protocol.version": "2.8"}
STORED = {1: "0.10.2", 2: "2.8"}
CODECS = (Codec.NONE, Codec.LZ4, Codec.GZIP)
FETCH_V2 = (1, 2)
PARTITION_BYTES = 1 << 20


def batch_of(codec: Codec) -> bytes:
    """Records of words, which compress as text does."""
    rng = random.Random(1)
    words = [rng.randbytes(rng.randrange(2, 9)).hex().encode() for _ in range(500)]
    now_ms = 1_700_000_000_000
    rows = []
    for at in range(PER_BATCH):
        value = b" ".join(rng.choices(words, k=SIZE // 8))[:SIZE].ljust(SIZE, b".")
        rows.append(LogRecord(now_ms + at, b"key-%04d" % at, value))
    return build_batch(rows, codec=codec)


@contextlib.contextmanager
def kafka_with_old_formats() -> Iterator[Side]:
    """Kafka 3.9 with the heap and the flags of its own start script, under a ZooKeeper."""
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="horolog-bench-")))
        address = stack.enter_context(zookeeper(work / "zookeeper"))
        node = Kafka(
            work / "kafka",
            peer=LAST_WITH_OLD_FORMATS,
            settings=PROTOCOL,
            heap="1g",
            initial_heap="1g",
            flags=JVM_FLAGS,
            zookeeper=address,
        )
        stack.enter_context(node)
        yield Side(KAFKA, node.bootstrap, node.pid, f"{KAFKA} {node.version}")


def create(side: Side, topic: str, magic: int) -> None:
    """A topic that stores a format; under a ZooKeeper a broker listens before it can make one."""
    configs = {"message.format.version": STORED[magic], "retention.ms": "-1"}
    for attempt in range(100):
        try:
            with Client(side.bootstrap) as client:
                client.create_topics({topic: 1}, configs=configs)
            return
        except HorologError:
            if attempt == 99:
                raise
            time.sleep(0.5)


def produced(side: Side, topic: str, batch: bytes, count: int) -> Mapping[str, float]:
    """Send a batch this many times, some of them under way at once."""
    bodies = itertools.repeat(raw.produce_request(topic, batch), count)
    before = side.cpu_s()
    watch = harness.Watch()
    with raw.Connection(side.bootstrap) as connection:
        connection.send_all(raw.PRODUCE, bodies, raw.produced)
    return _numbers(watch.numbers(), count * PER_BATCH, side.cpu_s() - before)


def fetched(side: Side, topic: str, end: int) -> Mapping[str, float]:
    """Read a topic to its end as a client of Kafka 0.10 does."""
    name = topic.encode()
    before = side.cpu_s()
    watch = harness.Watch()
    offset = 0
    with raw.Connection(side.bootstrap) as connection:
        while offset < end:
            head = struct.pack(">iiiih", -1, 500, 1, 1, len(name)) + name
            body = head + struct.pack(">iiqi", 1, 0, offset, PARTITION_BYTES)
            answer = connection.ask(FETCH_V2, body)
            at = 4 + 4 + 2 + len(name) + 4
            _, code, _, size = struct.unpack_from(">ihqi", answer, at)
            assert code == 0, f"{side.name} answers {code}"
            records = answer[at + 18 : at + 18 + size]
            header = parse_header(records)
            assert header.magic == 1, f"{side.name} gives format v{header.magic}"
            offset = _next_offset(records)
    return _numbers(watch.numbers(), end, side.cpu_s() - before)


def _next_offset(records: memoryview) -> int:
    """The offset that follows the last whole message."""
    first = parse_header(records)
    if first.codec_number:
        return [header.next_offset for _, header in iter_headers(records)][-1]
    return [listed.next_offset for listed in list_all(records, first)][-1]


def _numbers(watched: Mapping[str, float], records: int, cpu_s: float) -> Mapping[str, float]:
    return {
        **watched,
        "records/s": records / watched["seconds"],
        "broker CPU us/record": cpu_s / records * 1e6,
    }


def main() -> None:
    asked = harness.options(__doc__ or "")
    try:
        jars(LAST_WITH_OLD_FORMATS)
    except NoPeer as missing:
        raise SystemExit(str(missing)) from None
    PLAIN_KERNELS.load()
    count = 60 if asked.quick else 400
    with contextlib.ExitStack() as stack:
        makers = {HOROLOG: lambda: horolog(PROTOCOL), KAFKA: kafka_with_old_formats}
        sides = [stack.enter_context(makers[name]()) for name in asked.names]
        for codec in CODECS:
            batch = batch_of(codec)
            to, into = f"to-v1-{codec.name}", f"in-v2-{codec.name}"
            for side in sides:
                create(side, to, 1)
                create(side, into, 2)
                produced(side, into, batch, count)
            rows = (
                ("v2 produced, v1 stored", partial(produced, topic=to, batch=batch, count=count)),
                ("v2 stored, v1 fetched", partial(fetched, topic=into, end=count * PER_BATCH)),
            )
            for work, measure in rows:
                figure, reach = "broker CPU us/record", "not below 0.5x"
                row = harness.Row(f"{work}, {codec.name}", figure, reach, ("records/s",))
                harness.compare(measure, sides, asked, row)


if __name__ == "__main__":
    main()
