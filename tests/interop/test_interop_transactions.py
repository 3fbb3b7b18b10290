"""Transactions of `horolog.client` on Apache Kafka, and the sink that writes exactly once by them.

A consumer of librdkafka judges what is committed.
"""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from committed import values_seen
from patience import eventually
from releases import running
from tools.peers.kafka import LAST_OF_2, LAST_WITH_OLD_FORMATS, NEWEST, OLDEST_OF_2
from transactional_writes import SinkInTransactions, Write, new_topic, rows, settle

from horolog.client import Client, CommittedOffset, TransactionalProducer
from horolog.errors import ErrorCode, RequestRefused

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module", params=[NEWEST, LAST_WITH_OLD_FORMATS, LAST_OF_2, OLDEST_OF_2])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    return new_topic(client)


class TestProducer:
    def test_rows_are_seen_when_they_are_committed_and_never_when_aborted(
        self, bootstrap: str, client: Client, topic: str
    ) -> None:
        with TransactionalProducer(client, f"id-{topic}") as producer:
            producer.send(topic, rows("a", "bb"))
            assert values_seen(bootstrap, topic) == []
            assert sorted(values_seen(bootstrap, topic, "read_uncommitted")) == ["a", "bb"]
            producer.commit()
            producer.send(topic, rows("dropped"))
            producer.abort()
            producer.send(topic, rows("c", "ddd"))
            producer.send(topic, rows("eeee"))
            producer.commit()
            producer.commit()  # nothing is open
        settle(client, f"id-{topic}")
        assert sorted(values_seen(bootstrap, topic)) == ["a", "bb", "c", "ddd", "eeee"]

    def test_a_later_producer_of_the_same_id_ends_an_earlier_one_and_what_it_has_open(
        self, bootstrap: str, client: Client, topic: str
    ) -> None:
        with Client(bootstrap) as other, TransactionalProducer(client, topic) as earlier:
            earlier.send(topic, rows("a"))
            with TransactionalProducer(other, topic) as later:
                later.send(topic, rows("b"))
                for attempt in (earlier.commit, earlier.abort):
                    with pytest.raises(RequestRefused) as refusal:
                        attempt()
                    assert refusal.value.code in {
                        ErrorCode.producer_fenced,
                        ErrorCode.invalid_producer_epoch,
                        ErrorCode.invalid_txn_state,
                    }
                later.commit()
        settle(client, topic)
        assert values_seen(bootstrap, topic) == ["b"]

    def test_after_an_error_a_transaction_can_be_aborted_and_the_next_one_committed(
        self, bootstrap: str, client: Client, topic: str
    ) -> None:
        with TransactionalProducer(client, topic) as producer:
            producer.send(topic, rows("a"))
            with pytest.raises(RequestRefused):
                producer.send(topic, rows("x" * 2_000_000))  # max.message.bytes is 1 MiB
            for call in (producer.commit, lambda: producer.send(topic, rows("b"))):
                with pytest.raises(RequestRefused, match="abort it"):
                    call()
            producer.abort()
            producer.send(topic, rows("c", "d"))
            producer.commit()
        settle(client, topic)
        assert sorted(values_seen(bootstrap, topic)) == ["c", "d"]

    def test_offsets_of_a_group_are_committed_with_the_rows_or_not_at_all(
        self, client: Client, topic: str
    ) -> None:
        with TransactionalProducer(client, topic) as producer:
            producer.commit_offsets(topic, {(topic, 0): CommittedOffset(7, "said")})
            producer.commit()
            producer.commit_offsets(topic, {(topic, 0): CommittedOffset(9)})
            producer.abort()
        settle(client, topic)
        # Kafka 2.0 has no `require_stable`, and gives them a moment later.
        assert eventually(
            lambda: client.offset_fetch(topic) == {(topic, 0): CommittedOffset(7, "said")}
        )

    def test_a_time_that_is_longer_than_the_broker_allows_is_refused_by_name(
        self, client: Client, topic: str
    ) -> None:
        with pytest.raises(RequestRefused, match="INVALID_TRANSACTION_TIMEOUT"):
            TransactionalProducer(client, topic, transaction_timeout_ms=900_001)

    def test_very_many_rows_fill_requests_behind_each_other_once(
        self, bootstrap: str, client: Client, topic: str
    ) -> None:
        values = [f"{number:0100}" for number in range(40_000)]
        with TransactionalProducer(client, topic, batch_bytes=20_000) as producer:
            producer.send(topic, pa.table({"value": values}))
            producer.commit()
        settle(client, topic)
        assert sorted(values_seen(bootstrap, topic)) == values


@pytest.mark.parametrize("bootstrap", [OLDEST_OF_2], indirect=True, scope="module")
def test_a_broker_that_cannot_tell_what_is_committed_is_refused_by_name(
    bootstrap: str, topic: str
) -> None:
    """On Kafka 2.0 a record was once missing that had just been committed."""
    write = Write(bootstrap, topic)
    with pytest.raises(RequestRefused, match=r"needs Apache Kafka 2\.5 or newer"):
        write.task(0, 0, "a")
    assert write.seen() == []


@pytest.mark.parametrize(
    "bootstrap", [NEWEST, LAST_WITH_OLD_FORMATS, LAST_OF_2], indirect=True, scope="module"
)
class TestSink(SinkInTransactions):
    """At each Kafka that can tell."""
