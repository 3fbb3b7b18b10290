"""Fetches of which one is sent ahead give what plain fetches give, whatever happens in between."""

import signal
import time

import pytest
from running_broker import RunningBroker, a_broker
from scripted_broker import HangUp, ScriptedBroker

from horolog.client import LATEST, Client, FetchAhead, NoAnswer, PartitionFetch
from horolog.errors import ErrorCode, RequestRefused
from horolog.record import LogRecord, build_batch, read_records
from horolog.wire import LARGE_BYTES, ApiKey

VALUE = 2 * LARGE_BYTES  # records of an answer that are a view of it, not a copy


def batch(number: int) -> bytes:
    return build_batch([LogRecord(number, None, bytes([number]) * VALUE)])


def fill(broker: RunningBroker) -> None:
    for number in range(4):
        broker.append("t", batch(number))


broker = a_broker("t", now_ms=None, prepare=fill)


def request(offset: int, **options: int) -> PartitionFetch:
    return PartitionFetch("t", 0, offset, max_bytes=1, max_wait_ms=0, **options)


def values(client: FetchAhead, offset: int) -> list[int]:
    """What each record there consists of."""
    records = client.fetch(request(offset)).records
    found = [record.value or b"" for record in read_records(bytes(records))]
    assert all(set(value) == {value[0]} for value in found)
    return [value[0] for value in found]


@pytest.mark.parametrize("reuses_memory", [False, True])
def test_each_fetch_gives_its_own_records(client: Client, reuses_memory: bool) -> None:
    with FetchAhead(client, reuses_memory=reuses_memory) as ahead:
        for offset in range(4):
            if offset % 2:
                ahead.send(request(offset))
            assert values(ahead, offset) == [offset]


def test_memory_is_written_over_only_where_that_was_asked_for(client: Client) -> None:
    for reuses_memory in (False, True):
        with FetchAhead(client, reuses_memory=reuses_memory) as ahead:
            first = ahead.fetch(request(0)).records
            ahead.send(request(1))
            assert first[-2:-1] == b"\0"
            ahead.fetch(request(1))
            ahead.fetch(request(3))
            assert (first[-2:-1] == b"\3") is reuses_memory


def test_another_request_than_the_one_sent_gets_its_own_answer(client: Client) -> None:
    with FetchAhead(client) as ahead:
        ahead.send(request(1))
        assert values(ahead, 3) == [3]
        ahead.send(request(0))
        ahead.send(request(2))
        assert values(ahead, 2) == [2]


def test_a_client_is_asked_other_things_once_what_was_sent_is_given_up(client: Client) -> None:
    with FetchAhead(client) as ahead:
        ahead.send(request(1))
    found = client.list_offsets({("t", 0): LATEST})[("t", 0)]
    assert found is not None
    assert found.offset == 4


def test_an_answer_that_is_given_up_is_not_waited_for(client: Client) -> None:
    began = time.monotonic()
    with FetchAhead(client) as ahead:
        ahead.send(PartitionFetch("t", 0, 4, max_wait_ms=60_000))  # the end of the log
    assert time.monotonic() - began < 30
    assert client.fetch("t", 0, 1).high_watermark == 4


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_client_interrupted_while_it_waits_may_be_asked_other_things(
    client: Client, is_sent: bool
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    at_the_end = PartitionFetch("t", 0, 4, max_wait_ms=60_000)

    def fetch_until_interrupted(ahead: FetchAhead) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        ahead.fetch(at_the_end)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with FetchAhead(client) as ahead:
            if is_sent:
                ahead.send(at_the_end)
            with pytest.raises(KeyboardInterrupt):
                fetch_until_interrupted(ahead)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    found = client.list_offsets({("t", 0): LATEST})[("t", 0)]
    assert found is not None
    assert found.offset == 4


def test_a_refusal_is_raised_where_the_answer_is_waited_for(client: Client) -> None:
    with FetchAhead(client) as ahead:
        ahead.send(request(9))
        with pytest.raises(RequestRefused) as refused:
            ahead.fetch(request(9))
        assert refused.value.code == ErrorCode.offset_out_of_range
        assert values(ahead, 2) == [2]


def test_a_broker_that_starts_again_meanwhile_is_asked_again(
    broker: RunningBroker, client: Client
) -> None:
    with FetchAhead(client, reuses_memory=True) as ahead:
        assert values(ahead, 0) == [0]
        ahead.send(request(1))
        broker.restart()
        assert values(ahead, 1) == [1]


def test_a_broker_that_hangs_up_on_each_fetch_is_reported() -> None:
    with (
        ScriptedBroker({ApiKey.FETCH: lambda request: HangUp()}) as broker,
        Client(broker.bootstrap, timeout_ms=3_000) as client,
        FetchAhead(client) as ahead,
    ):
        ahead.send(PartitionFetch("t", 5, 0))
        with pytest.raises(NoAnswer):
            ahead.fetch(PartitionFetch("t", 5, 0))
        assert len(broker.asked(ApiKey.FETCH)) > 1


def test_what_cannot_be_sent_is_refused_when_it_is_waited_for(client: Client) -> None:
    unknown = PartitionFetch("t", 7, 0, max_wait_ms=0)
    with FetchAhead(client) as ahead:
        ahead.send(unknown)
        with pytest.raises(RequestRefused) as refused:
            ahead.fetch(unknown)
        assert refused.value.code == ErrorCode.unknown_topic_or_partition
