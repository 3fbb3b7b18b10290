"""Dead letters of rows that are written exactly once to Apache Kafka: part of the transaction."""

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest
from committed import values_seen
from overrides import override
from releases import running
from tools.peers.kafka import LAST_OF_2, NEWEST

from horolog.client import Client
from horolog.clock import SystemClock
from horolog.sources import scan
from horolog.spark.errors import RowsRefused
from horolog.spark.write.options import WriteOptions
from horolog.spark.write.rows import SinkColumns
from horolog.spark.write.task import TaskCommitMessage, abort_batch, commit_batch, write_rows

DAY_MS = 86_400_000
ROWS = 1_200
_numbers = itertools.count()


@pytest.fixture(scope="module", params=[NEWEST, LAST_OF_2])
def peer(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def bootstrap(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(peer, tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka.bootstrap


class KilledError(Exception):
    pass


class Writes:
    """Attempts at one task, some of whose rows are too old for the topic."""

    def __init__(self, bootstrap: str, peer: str) -> None:
        number = next(_numbers)
        self.bootstrap, self.topic, self.dead = bootstrap, f"t{number}", f"dead{number}"
        self.bound = f"message.timestamp.{'difference' if peer == LAST_OF_2 else 'before'}.max.ms"
        with Client(bootstrap) as client:
            client.create_topics({self.topic: 2}, configs={self.bound: str(DAY_MS)})
            client.create_topics({self.dead: 2})
        self.now_ms = SystemClock().now_ms()
        self.options = WriteOptions.parse(
            {
                "kafka.bootstrap.servers": bootstrap,
                "exactlyOnce": "true",
                "writeName": f"nightly {number}",
                "writeBatch": "0",
                "onInvalidTimestamp": "deadLetter",
                "deadLetterTopic": self.dead,
                "kafka.batch.size": "6000",
            }
        )

    def is_refused(self, row: int) -> bool:
        return row % 7 == 3 or 400 < row < 700

    def attempt(self, killed_at: int = ROWS, topic: str | None = None) -> TaskCommitMessage:
        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, ROWS, 100):
                if start >= killed_at:
                    raise KilledError
                rows = range(start, start + 100)
                times = [self.now_ms - 10 * DAY_MS * self.is_refused(row) for row in rows]
                yield pa.RecordBatch.from_pydict(
                    {
                        "value": [f"{row} {'x' * 90}" for row in rows],
                        "partition": pa.array([row % 2 for row in rows], pa.int32()),
                        "timestampMs": times,
                    }
                )

        fields = [("value", "string"), ("partition", "int"), ("timestampMs", "bigint")]
        columns = SinkColumns.of(fields, topic or self.topic)
        return write_rows(batches(), columns, self.options)

    def commit(self, done: TaskCommitMessage) -> None:
        commit_batch([done], self.options)

    def seen(self) -> tuple[list[int], list[int]]:
        """The rows and the letters that are committed, once no transaction is open."""
        with Client(self.bootstrap) as client:
            query = self.options.write_name
            client.init_transactions(f"horolog/task/0/{query}", transaction_timeout_ms=60_000)
        rows, letters = (
            sorted(int(value.split()[0]) for value in values_seen(self.bootstrap, topic))
            for topic in (self.topic, self.dead)
        )
        return rows, letters

    @property
    def expected(self) -> tuple[list[int], list[int]]:
        refused = [row for row in range(ROWS) if self.is_refused(row)]
        return sorted({*range(ROWS)} - {*refused}), refused


@pytest.fixture
def writes(bootstrap: str, peer: str, monkeypatch: pytest.MonkeyPatch) -> Writes:
    override(monkeypatch, "horolog.spark", HELD_OF_BYTES=40_000)
    return Writes(bootstrap, peer)


@pytest.mark.parametrize("killed_at", [0, 600, 1_100])
def test_letters_are_committed_with_the_rows_whatever_attempts_were_before(
    writes: Writes, killed_at: int
) -> None:
    with pytest.raises(KilledError):
        writes.attempt(killed_at)
    assert writes.seen() == ([], [])
    writes.attempt()  # its driver dies
    done = writes.attempt()
    assert (done.records, done.dead_letters) == tuple(map(len, writes.expected))
    writes.commit(done)
    assert writes.seen() == writes.expected
    again = writes.attempt()
    assert again.dead_letters == 0
    writes.commit(again)
    assert writes.seen() == writes.expected
    with Client(writes.bootstrap) as client:
        columns = ("value", "headers")
        letters = scan(client, writes.dead, columns=columns, read_committed=True).read_all()
    for letter in letters.to_pylist():
        said = {each["key"]: each["value"].decode() for each in letter["headers"]}
        assert said["horolog.topic"] == writes.topic
        assert int(said["horolog.partition"]) == int(letter["value"].split()[0]) % 2
        assert int(said["horolog.timestamp"]) == writes.now_ms - 10 * DAY_MS


def test_letters_of_an_aborted_batch_are_not_seen(writes: Writes) -> None:
    abort_batch([writes.attempt()], writes.options)
    assert writes.seen() == ([], [])
    writes.commit(writes.attempt())
    assert writes.seen() == writes.expected


def test_letters_that_are_refused_too_and_rows_among_them_end_the_write(writes: Writes) -> None:
    with pytest.raises(RowsRefused, match=f"for topic {writes.dead}, to which dead letters go"):
        writes.attempt(topic=writes.dead)
    writes.dead = f"{writes.dead}-compacted"  # which takes no record without a key
    with Client(writes.bootstrap) as client:
        client.create_topics({writes.dead: 1}, configs={"cleanup.policy": "compact"})
    asked = {"deadLetterTopic": writes.dead, "kafka.bootstrap.servers": writes.bootstrap}
    once = {"exactlyOnce": "true", "writeName": "x", "writeBatch": "0"}
    writes.options = WriteOptions.parse(asked | once | {"onInvalidTimestamp": "deadLetter"})
    with pytest.raises(RowsRefused, match="The dead-letter topic refuses records, too"):
        writes.attempt()
    assert writes.seen() == ([], [])
