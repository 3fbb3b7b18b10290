"""The clients of the benchmarks, each in a process of its own: python -m bench.clients NAME JSON.

Prints one JSON object: seconds, how busy the busiest thread was, and what the client counted.
"""

import contextlib
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from bench import group_members, raw, secured_clients
from bench.harness import Watch
from tools.peers.kafka import PEERS

KAFKARROW_ROWS = 100_000  # of a batch; smaller ones are slower
STAMP = 8  # bytes of a time in front of a value
T0_MS = 1_700_000_000_000
PARTITIONS = 4  # of the topics that transactions are written to
AnswerT = TypeVar("AnswerT")


def payloads(size: int, count: int = 1000) -> list[bytes]:
    """Values that compress about as well as log lines do (three to four times)."""
    chance = random.Random(size)
    words = [b"%x" % chance.getrandbits(32) for _ in range(200)]
    made = []
    for _ in range(count):
        value = b" ".join(chance.choice(words) for _ in range(size // 4))
        made.append(value[:size].ljust(size, b"."))
    return made


def batch_of(size: int, records: int, codec: str = "none") -> bytes:
    """A batch of `records` values of `size` bytes, a millisecond apart."""
    from horolog.record.builder import LogRecord, build_batch
    from horolog.record.compression import Codec

    values = payloads(size)
    rows = [LogRecord(T0_MS + at, None, values[at % len(values)]) for at in range(records)]
    return build_batch(rows, codec=Codec[codec.upper()])


# --- producing ------------------------------------------------------------------------------------


def librdkafka_produce(
    bootstrap: str,
    topic: str,
    records: int,
    size: int,
    settings: dict[str, Any],
    partitions: int = 1,
) -> dict[str, float]:
    """As fast as librdkafka takes it, until every record is acknowledged."""
    from confluent_kafka import Producer

    chunk = [{"value": value} for value in payloads(size)]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256 << 10,
            "log_level": 0,
            **settings,
        }
    )
    producer.list_topics(topic)
    watch = Watch()
    _produce_all(producer, topic, chunk, records, partitions)
    return {**watch.numbers(), "records": records, "bytes": records * size}


def _produce_all(
    producer: Any, topic: str, chunk: Sequence[dict[str, Any]], records: int, partitions: int = 1
) -> None:
    """Send this many records, the values of `chunk` again and again, until all are acknowledged.

    Partitions take turns, each with a chunk or with its share of the records.
    """
    sent, most = 0, min(len(chunk), -(-records // partitions))
    for partition in itertools.cycle(range(partitions)):
        if sent >= records:
            break
        want = min(most, records - sent)
        part = chunk if want == len(chunk) else chunk[:want]
        taken = 0
        while taken < want:
            try:
                took = producer.produce_batch(topic, part[taken:] if taken else part, partition)
            except BufferError:
                took = 0
            taken += took
            if taken < want:
                for message in part:
                    message.pop("_error", None)
                producer.poll(0.01)
        sent += want
    left = producer.flush(120)
    assert left == 0, f"{left} records were not acknowledged"


def librdkafka_on_demand(bootstrap: str, topic: str, size: int) -> dict[str, float]:
    """As many records as each line of the input says, as fast as librdkafka takes them."""
    from confluent_kafka import Producer

    chunk = [{"value": value} for value in payloads(size)]
    settings = {"bootstrap.servers": bootstrap, "acks": "1", "log_level": 0}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    producer.list_topics(topic)
    records = 0
    for line in sys.stdin:
        _produce_all(producer, topic, chunk, int(line))
        records += int(line)
        print(records, flush=True)
    return {"records": records}


def raw_produce(
    bootstrap: str, topic: str, requests: int, size: int, records: int, codec: str
) -> dict[str, float]:
    """Batches packed beforehand, several under way."""
    body = raw.produce_request(topic, batch_of(size, records, codec))
    with raw.Connection(bootstrap) as connection:
        raw.produced(connection.ask(raw.PRODUCE, body))
        watch = Watch()
        connection.send_all(raw.PRODUCE, itertools.repeat(body, requests), raw.produced)
    total = requests * records
    return {**watch.numbers(), "records": total, "bytes": total * size, "requests": requests}


def longest_pause(bootstrap: str, topic: str, seconds: float) -> dict[str, float]:
    """A record every 10 ms with acks=all, for so long: the longest wait for an acknowledgement.

    Prints a line once the first record is acknowledged.
    """
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 0,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 100,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "topic.metadata.refresh.fast.interval.ms": 50,
        "socket.connection.setup.timeout.ms": 1000,
        "log_level": 0,
    }
    producer = Producer(settings)
    failed: list[object] = []
    acknowledged: list[float] = []

    def done(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)
        acknowledged.append(time.perf_counter())

    producer.produce(topic, b"first", partition=0, on_delivery=done)
    producer.flush(60)
    print("begun", flush=True)
    watch, until = Watch(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        producer.produce(topic, b"next", partition=0, on_delivery=done)
        producer.poll(0.01)
    producer.flush(120)
    assert not failed, failed[:1]
    pauses = [later - before for before, later in itertools.pairwise(acknowledged)]
    return {**watch.numbers(), "records": len(acknowledged), "pause_s": max(pauses)}


def raw_on_demand(
    bootstrap: str, topic: str, size: int, records: int, under_way: int
) -> dict[str, float]:
    """The same batch again and again, as many requests as each line of the input says."""
    body = raw.produce_request(topic, batch_of(size, records))
    requests = 0
    with raw.Connection(bootstrap) as connection:
        for line in sys.stdin:
            bodies = itertools.repeat(body, int(line))
            connection.send_all(raw.PRODUCE, bodies, raw.produced, under_way)
            requests += int(line)
            print(requests, flush=True)
    return {"requests": requests}


def raw_latency(
    bootstrap: str, topic: str, requests: int, size: int, acks: int = 1, nice: int = 0
) -> dict[str, float]:
    """One record a request, one request at a time: how long each took."""
    os.nice(nice)
    body = raw.produce_request(topic, batch_of(size, 1), acks=acks)
    with raw.Connection(bootstrap) as connection:
        for _ in range(200):
            raw.produced(connection.ask(raw.PRODUCE, body))
        watch = Watch()
        took = []
        for _ in range(requests):
            started = time.perf_counter()
            answer = connection.ask(raw.PRODUCE, body)
            took.append(time.perf_counter() - started)
            raw.produced(answer)
    done = {"records": requests, "bytes": requests * size, "requests": requests}
    return {**watch.numbers(), **done, **_percentiles(took)}


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_ms": 1000 * statistics.median(ordered),
        "p99_ms": 1000 * ordered[int(len(ordered) * 0.99)],
    }


# --- fetching -------------------------------------------------------------------------------------


def librdkafka_fetch(
    bootstrap: str, topic: str, records: int, size: int, settings: dict[str, Any] | None = None
) -> dict[str, float]:
    """Consume `records` records from the start, a thousand Python objects at a time."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(_consuming(bootstrap) | (settings or {}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.consume(1, 30)
    watch = Watch()
    seen = 1
    while seen < records:
        got = consumer.consume(min(10_000, records - seen), 1)
        assert got, f"nothing more after {seen}"
        assert got[-1].error() is None, got[-1].error()
        seen += len(got)
    numbers = watch.numbers()
    consumer.close()
    return {**numbers, "records": seen, "bytes": seen * size}


def _consuming(bootstrap: str) -> dict[str, Any]:
    """Settings with which librdkafka reads as fast as it can."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "queued.max.messages.kbytes": 64 << 10,
        "fetch.queue.backoff.ms": 1,
        "log_level": 0,
    }


def librdkafka_objects(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    """Consume `records` records from the start, and look at all of each."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(_consuming(bootstrap))
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.consume(1, 30)
    watch, used = Watch(), time.process_time()
    seen, times = 1, 0
    while seen < records:
        for message in consumer.consume(min(1000, records - seen), 1):
            assert message.error() is None, message.error()
            assert message.key() is None
            assert len(message.value()) == size
            assert message.offset() == seen
            times += message.timestamp()[1] - T0_MS
            seen += 1
    numbers = {**watch.numbers(), "cpu_s": time.process_time() - used}
    consumer.close()
    assert times == sum(range(records)), "not the times that were sent"
    return {**numbers, "records": seen, "bytes": seen * size}


def arrow_fetch(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    """Read `records` records from the start into Arrow tables."""
    from horolog.client import Client
    from horolog.record.kernels.loading import COLUMN_KERNELS
    from horolog.sources import scan

    COLUMN_KERNELS.load()
    with Client(bootstrap) as client:
        assert scan(client, topic, ending_offsets={0: 1}).read_all().num_rows == 1
        watch, used = Watch(), time.process_time()
        seen = value_bytes = 0
        for table in scan(client, topic, ending_offsets={0: records}):
            seen += table.num_rows
            value_bytes += table.column("value").nbytes
        numbers = {**watch.numbers(), "cpu_s": time.process_time() - used}
    assert seen == records
    assert value_bytes >= records * size
    return {**numbers, "records": seen, "bytes": seen * size}


def kafkarrow_fetch(bootstrap: str, topic: str, records: int, size: int) -> dict[str, float]:
    """Read `records` records from the start as kafkarrow's Arrow batches."""
    sys.path.append(str(PEERS / "kafkarrow"))
    from kafkarrow import ConsumerManager, SourceTopic

    settings = {name: str(value).lower() for name, value in _consuming(bootstrap).items()}
    reader = ConsumerManager(settings, [SourceTopic.from_earliest(topic)], KAFKARROW_ROWS)
    batch = _next_rows(reader)
    watch, used = Watch(), time.process_time()
    seen = value_bytes = 0
    while True:
        seen += batch.num_rows
        value_bytes += batch.column("value").nbytes
        if seen >= records:
            break
        batch = _next_rows(reader)
    numbers = {**watch.numbers(), "cpu_s": time.process_time() - used}
    assert seen == records
    assert value_bytes >= records * size
    return {**numbers, "records": seen, "bytes": seen * size}


def _next_rows(reader: Any) -> Any:
    """The next batch of kafkarrow's that has rows."""
    for _ in range(30):
        batch = reader.poll(timeout_ms=1000)
        if batch.num_rows:
            return batch
    raise AssertionError("nothing more within half a minute")


def raw_fetch(bootstrap: str, topic: str, end: int, size: int) -> dict[str, float]:
    """Fetch to the end and look at nothing but batch headers."""
    with raw.Connection(bootstrap) as connection:
        watch = Watch()
        offset = requests = received = 0
        while offset < end:
            answer = connection.ask(raw.FETCH, raw.fetch_request(topic, offset))
            records = raw.fetched(answer)
            received += len(records)
            after = raw.next_offset(records, offset)
            assert after > offset, f"no whole batch at {offset}"
            offset = after
            requests += 1
    return {**watch.numbers(), "records": offset, "bytes": received, "requests": requests}


# --- at a fixed rate ------------------------------------------------------------------------------


def steady(
    bootstrap: str, topic: str, partitions: int, seconds: int, rate: int, size: int
) -> dict[str, float]:
    """Consume what another process produces at a fixed rate: from when each record was due.

    The first two seconds are not counted in the percentiles.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    consumer.poll(0.5)
    given = {"bootstrap": bootstrap, "topic": topic, "partitions": partitions}
    given |= {"seconds": seconds, "rate": rate, "size": size}
    producing = subprocess.Popen(
        [sys.executable, "-m", "bench.clients", "produce_at_rate", json.dumps(given)],
        stdout=subprocess.DEVNULL,
    )
    watch = Watch()
    took: list[float] = []
    while len(took) < seconds * rate:
        message = consumer.poll(30)
        now_ns = time.monotonic_ns()
        assert message is not None, f"nothing more after {len(took)}"
        assert message.error() is None, message.error()
        took.append((now_ns - int.from_bytes(message.value()[:STAMP], "big")) / 1e9)
    numbers = watch.numbers()
    assert producing.wait(60) == 0
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
    return {
        **numbers,
        **_percentiles(took[2 * rate :]),
        "records": len(took),
        "clients' CPU-us/record": 1e6 * cpu_s / len(took),
    }


def produce_at_rate(
    bootstrap: str, topic: str, partitions: int, seconds: int, rate: int, size: int
) -> dict[str, float]:
    """Records to each partition in turn, those of each millisecond at its start.

    A value begins with the time at which it was due, on the clock that all processes share.
    """
    from confluent_kafka import Producer

    values = [value[STAMP:] for value in payloads(size)]
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.list_topics(topic)
    sent, began_ns = 0, time.monotonic_ns()
    for tick in range(1, seconds * 1000 + 1):
        due_ns = began_ns + tick * 1_000_000
        time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        stamp = due_ns.to_bytes(STAMP, "big")
        while sent < tick * rate // 1000:
            value = stamp + values[sent % len(values)]
            producer.produce(topic, value, partition=sent % partitions)
            sent += 1
        producer.poll(0)
    left = producer.flush(60)
    assert left == 0, f"{left} records were not acknowledged"
    return {"records": sent}


# --- loading files --------------------------------------------------------------------------------


def arrow_load(bootstrap: str, topic: str, file: str, records: int, size: int) -> dict[str, float]:
    """Send the rows of a file of tables, with values of `size` bytes."""
    from pathlib import Path

    from horolog.cli.table_files import opened
    from horolog.client import Client, Producer
    from horolog.record.kernels.loading import COLUMN_KERNELS

    COLUMN_KERNELS.load()
    watch, started_cpu_s = Watch(), time.process_time()
    with (
        opened(Path(file), {}) as (reader, _),
        Client(bootstrap) as client,
        Producer(client) as producer,
    ):
        written = producer.send(topic, reader)
    assert written.records == records
    numbers = {**watch.numbers(), "cpu_s": time.process_time() - started_cpu_s}
    return {**numbers, "records": records, "bytes": records * size}


def librdkafka_load(
    bootstrap: str, topic: str, file: str, records: int, size: int
) -> dict[str, float]:
    """The same rows, one `produce` each."""
    from pathlib import Path

    from confluent_kafka import Producer

    from horolog.cli.table_files import opened

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 << 10,
            "log_level": 0,
        }
    )
    producer.list_topics(topic)
    watch, started_cpu_s = Watch(), time.process_time()
    sent = 0
    with opened(Path(file), {}) as (reader, _):
        for batch in reader:
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            for key, value in zip(keys, values, strict=True):
                while True:
                    try:
                        producer.produce(topic, value, key)
                        break
                    except BufferError:
                        producer.poll(0.01)
                sent += 1
            producer.poll(0)
    left = producer.flush(600)
    assert left == 0, f"{left} records were not acknowledged"
    assert sent == records
    numbers = {**watch.numbers(), "cpu_s": time.process_time() - started_cpu_s}
    return {**numbers, "records": records, "bytes": records * size}


# --- looking up -----------------------------------------------------------------------------------


def fill(
    bootstrap: str, topic: str, records: int, size: int, per_batch: int, codec: str
) -> dict[str, float]:
    """A log whose records are a millisecond apart, in batches of `per_batch`."""
    sample = batch_of(size, per_batch, codec)
    bodies = (raw.produce_request(topic, _moved(sample, at)) for at in range(0, records, per_batch))
    with raw.Connection(bootstrap) as connection:
        watch = Watch()
        connection.send_all(raw.PRODUCE, bodies, raw.produced)
    return {**watch.numbers(), "records": records}


def round_robin(
    bootstrap: str, topic: str, partitions: int, size: int, per_batch: int, rounds: list[int]
) -> dict[str, float]:
    """A batch to every partition in turn, `rounds` times, each round this many ms later."""
    sample = batch_of(size, per_batch)
    bodies = (
        raw.produce_request(topic, batch, partition=partition)
        for batch in (_moved(sample, by_ms) for by_ms in rounds)
        for partition in range(partitions)
    )
    with raw.Connection(bootstrap) as connection:
        watch = Watch()
        connection.send_all(raw.PRODUCE, bodies, raw.produced)
    requests = partitions * len(rounds)
    total = requests * per_batch
    return {**watch.numbers(), "records": total, "bytes": total * size, "requests": requests}


def _moved(batch: bytes, by_ms: int) -> bytes:
    """The same batch at another time: only the header knows times absolutely."""
    from horolog.record.batch import HEADER_SIZE, parse_header, with_records

    header = parse_header(batch)
    moved = header._replace(
        base_timestamp=header.base_timestamp + by_ms, max_timestamp=header.max_timestamp + by_ms
    )
    return with_records(moved, batch[HEADER_SIZE:])


def raw_lookup(bootstrap: str, topic: str, lookups: int, records: int) -> dict[str, float]:
    """Offsets of random times, one request at a time, each answer checked."""
    chance = random.Random(7)
    with raw.Connection(bootstrap) as connection:
        watch = Watch()
        took = []
        for _ in range(lookups):
            at = chance.randrange(records)
            body = raw.list_offsets_request(topic, T0_MS + at)
            started = time.perf_counter()
            answer = connection.ask(raw.LIST_OFFSETS, body)
            took.append(time.perf_counter() - started)
            assert raw.found(answer) == (T0_MS + at, at)
    return {**watch.numbers(), "lookups": lookups, **_percentiles(took)}


def raw_complete(bootstrap: str, topic: str, lookups: int) -> dict[str, float]:
    """Up to which time a partition is complete, one request at a time."""
    body = raw.complete_request(topic, 0)
    with raw.Connection(bootstrap) as connection:
        watch = Watch()
        took = []
        for _ in range(lookups):
            started = time.perf_counter()
            answer = connection.ask(raw.DESCRIBE_CONFIGS, body)
            took.append(time.perf_counter() - started)
            assert bytes(answer).count(b"complete_until_ms") == 2
    return {**watch.numbers(), "lookups": lookups, **_percentiles(took)}


def raw_commits(
    bootstrap: str, topic: str, commits: int, groups: int, offsets: int
) -> dict[str, float]:
    """Commits of this many partitions, one under way for each group; times are of whole rounds."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(raw.Connection(bootstrap)) for _ in range(groups)]
        watch = Watch()
        took = []
        for offset in range(commits // groups):
            bodies = [
                raw.commit_request(f"group-{group}", topic, offsets, offset)
                for group in range(groups)
            ]
            started = time.perf_counter()
            for connection, body in zip(connections, bodies, strict=True):
                connection.send(raw.OFFSET_COMMIT, body)
            for connection in connections:
                raw.check_committed(connection.receive())
            took.append(time.perf_counter() - started)
    return {**watch.numbers(), "offsets": commits * offsets, **_percentiles(took)}


def commits_of_groups(
    bootstrap: str, topic: str, groups: int, offsets: int, rounds: int
) -> dict[str, float]:
    """Commits of this many partitions by each group in turn, several under way."""
    bodies = (
        raw.commit_request(f"group-{group}", topic, offsets, offset)
        for offset in range(rounds)
        for group in range(groups)
    )
    with raw.Connection(bootstrap) as connection:
        watch = Watch()
        connection.send_all(raw.OFFSET_COMMIT, bodies, raw.check_committed)
    return {**watch.numbers(), "offsets": groups * offsets * rounds}


def paced(count: int, rate: float, turn: int, of: int) -> Iterator[int]:
    """So many numbers, in turns with others; each when its time has come.

    Args:
        count: how many.
        rate: numbers a second, of all together; 0: at once.
        turn: whose they are, from 0 on.
        of: how many take turns.
    """
    began = time.perf_counter()
    for number in range(count):
        if rate:
            due = began + (number * of + turn) / rate
            time.sleep(max(0.0, due - time.perf_counter()))
        yield number


def transactions(
    bootstrap: str, topic: str, each: int, records: int, size: int, producers: int, rate: float
) -> dict[str, float]:
    """Transactions of librdkafka's producers, each in a thread: `each` of this many records.

    The records are flushed before the commit, the time of which is that of its requests alone.
    With a rate, this many transactions begin a second, of all producers together.
    """
    from confluent_kafka import Producer

    chunk = [{"value": value} for value in payloads(size, min(records, 10_000))]
    begun = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"bench-{number}",
                "linger.ms": 1 if records > 1 else 0,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for number in range(producers)
    ]
    took: list[float] = []

    def work(number: int, count: int) -> None:
        producer = begun[number]
        for _ in paced(count, rate, number, producers):
            producer.begin_transaction()
            left = records
            while left:
                producer.produce_batch(topic, chunk[:left])
                left -= min(left, len(chunk))
            assert not producer.flush(60)
            started = time.perf_counter()
            producer.commit_transaction(60)
            took.append(time.perf_counter() - started)

    for number, producer in enumerate(begun):
        producer.init_transactions(60)
        work(number, 1)
    took.clear()
    watch = Watch()
    with ThreadPoolExecutor(producers) as threads:
        for done in [threads.submit(work, number, each) for number in range(producers)]:
            done.result()
    return {**watch.numbers(), **_done(each * producers, records), **_percentiles(took)}


def _done(commits: int, records: int) -> dict[str, float]:
    return {"commits": commits, "records": commits * records}


def raw_transactions(
    bootstrap: str, topic: str, each: int, records: int, size: int, producers: int, rate: float
) -> dict[str, float]:
    """As `transactions`, in the second flow of KIP-890, of clients that do next to nothing.

    Records are packed beforehand, a thousand a batch; each producer has a partition of its own, as
    far as there are some. A request that is refused because the former transaction is being ended
    (51) is sent again after 20 ms, as librdkafka does.
    """
    transactions(bootstrap, topic, 1, 1, size, 1, 0)  # so that the topics are there
    took: list[float] = []

    def commit(number: int, count: int) -> None:
        with raw.Connection(bootstrap) as connection:
            producer = _RawProducer(connection, number, topic, records, size)
            took.extend(producer.commit() for _ in paced(count, rate, number, producers))

    with ThreadPoolExecutor(producers) as threads:
        for count in (1, each):
            if count == each:
                took.clear()
                watch = Watch()
            for done in [threads.submit(commit, number, count) for number in range(producers)]:
                done.result()
    return {**watch.numbers(), **_done(each * producers, records), **_percentiles(took)}


class _RawProducer:
    """A transactional id on a connection."""

    def __init__(
        self, connection: raw.Connection, number: int, topic: str, records: int, size: int
    ) -> None:
        self._connection = connection
        self._name, self._topic = f"raw-{number}", topic
        self._partition = number % PARTITIONS
        counts = [1000] * (records // 1000) + [records % 1000] * (records % 1000 > 0)
        self._batches = [batch_of(size, count) for count in counts]
        body = raw.init_producer_id_request(self._name)
        self._id, self._epoch = self._asked(raw.INIT_PRODUCER_ID, body, raw.initialised)

    def commit(self) -> float:
        """One transaction; seconds of its commit."""
        api, check = raw.TRANSACTIONAL_PRODUCE[2], raw.check_transactional_produced
        bodies = self._requests()
        self._asked(api, next(bodies), check)  # which begins the transaction
        self._connection.send_all(api, bodies, check)
        started = time.perf_counter()
        body = raw.end_request_v5(self._name, self._id, self._epoch)
        self._id, self._epoch = self._asked(raw.END_TXN[2], body, raw.ended_v5)
        return time.perf_counter() - started

    def _requests(self) -> Iterator[bytes]:
        """The Produce requests of a transaction."""
        from horolog.record.batch import HEADER_SIZE, TRANSACTIONAL_BIT, parse_header, with_records

        sequence = 0
        for batch in self._batches:
            header = parse_header(batch)._replace(
                attributes=TRANSACTIONAL_BIT,
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=sequence,
            )
            sequence += header.records_count
            sent = with_records(header, memoryview(batch)[HEADER_SIZE:])
            yield raw.transactional_produce_request(
                self._name, self._topic, sent, partition=self._partition
            )

    def _asked(
        self, api: tuple[int, int], body: bytes, read: Callable[[memoryview], AnswerT]
    ) -> AnswerT:
        while True:
            try:
                return read(self._connection.ask(api, body))
            except raw.Refused as error:
                if error.code != raw.CONCURRENT_TRANSACTIONS:
                    raise
                time.sleep(0.02)


CLIENTS: dict[str, Callable[..., dict[str, float]]] = {
    one.__name__: one
    for one in (
        librdkafka_produce,
        librdkafka_on_demand,
        raw_produce,
        raw_on_demand,
        raw_latency,
        longest_pause,
        librdkafka_fetch,
        librdkafka_objects,
        arrow_fetch,
        kafkarrow_fetch,
        raw_fetch,
        steady,
        produce_at_rate,
        arrow_load,
        librdkafka_load,
        fill,
        round_robin,
        raw_lookup,
        raw_complete,
        raw_commits,
        commits_of_groups,
        transactions,
        raw_transactions,
        group_members.rebalances,
        group_members.keep_alives,
        secured_clients.connections,
        secured_clients.logins,
        secured_clients.flood,
    )
}


if __name__ == "__main__":
    numbers = CLIENTS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(numbers), flush=True)
    os._exit(0)  # librdkafka's threads need no good-bye
