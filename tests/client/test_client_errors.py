"""What a client makes of brokers that are absent, silent, confused or in the middle of a change."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from memory import measured_peak
from overrides import override
from patience import PATIENCE_S
from scripted_broker import HangUp, Raw, ScriptedBroker, Silence

from horolog.client import LATEST, Client, FoundOffset, NoAnswer
from horolog.errors import ErrorCode, RecordsRejected, RequestRefused
from horolog.wire import (
    ApiKey,
    FetchedPartition,
    FetchedTopic,
    MalformedResponse,
    Versions,
    encode_fetch_response,
)

CLICKS = ("clicks", 5)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    override(
        monkeypatch,
        "horolog.client",
        FIRST_CONTACT_MS=200,
        UNKNOWN_TOPIC_MS=200,
        FIRST_PAUSE_S=0.001,
        LONGEST_PAUSE_S=0.02,
    )


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that refuses: bound, but without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def talk(
    answers: Mapping[ApiKey, Any] | None = None,
    *,
    script: Mapping[str, Any] | None = None,
    **own: Any,
) -> Iterator[tuple[ScriptedBroker, Client]]:
    """A client and the broker that it asks."""
    with (
        ScriptedBroker(answers or {}, **(script or {})) as broker,
        Client(broker.bootstrap, **own) as client,
    ):
        yield broker, client


def offsets(error: int = 0, offset: int = 40) -> dict[str, Any]:
    partition = {
        "partition_index": 5,
        "error_code": error,
        "timestamp": -1,
        "offset": offset,
        "leader_epoch": 3,
    }
    return {"topics": [{"name": "clicks", "partitions": [partition]}]}


def produced(error: int = 0, **more: Any) -> dict[str, Any]:
    partition = {"index": 5, "error_code": error, "base_offset": 40, "record_errors": (), **more}
    topic = {"name": "clicks", "topic_id": None, "partition_responses": [partition]}
    return {"responses": [topic]}


def in_turn(*replies: Any) -> Callable[[Any], Any]:
    """One reply after another, the last one for ever."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def test_an_absent_broker_is_named_with_every_address_that_was_tried(dead_port: int) -> None:
    with (
        Client(f"127.0.0.1:{dead_port},no-such-host.invalid:9092") as client,
        pytest.raises(NoAnswer) as absent,
    ):
        client.metadata()
    assert str(absent.value) == (
        f"no broker answered: 127.0.0.1:{dead_port} (connection refused), "
        "no-such-host.invalid:9092 (no such host name)"
    )
    assert not absent.value.sent


def test_the_next_bootstrap_server_is_asked_when_the_first_is_absent(dead_port: int) -> None:
    with ScriptedBroker() as broker:
        bootstrap = f"127.0.0.1:{dead_port},{broker.bootstrap}"
        with Client(bootstrap) as client:
            assert set(client.metadata([]).brokers) == {1}


def test_a_broker_is_reached_over_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with talk(script={"host": "::1"}) as (broker, client):
        assert client.metadata([]).brokers[1].address == ("::1", broker.port)


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.METADATA])
def test_a_silent_broker_ends_the_call_when_its_time_is_over(api_key: ApiKey) -> None:
    with talk({api_key: Silence()}, timeout_ms=500) as (_, client):
        started = time.monotonic()
        with pytest.raises(NoAnswer, match="no answer in time"):
            client.metadata([])
        assert 0.4 < time.monotonic() - started < PATIENCE_S


@pytest.mark.parametrize("arrived", [1, 600 << 10, 3 << 20])
def test_a_large_answer_that_stops_half_way_ends_the_call_in_time(arrived: int) -> None:
    part = Raw((8 << 20).to_bytes(4, "big") + bytes(arrived))
    with talk({ApiKey.FETCH: part}, timeout_ms=500) as (_, client):
        started = time.monotonic()
        with pytest.raises(NoAnswer, match="no answer in time"):
            client.fetch(*CLICKS, 0, max_wait_ms=0)
        assert 0.4 < time.monotonic() - started < PATIENCE_S


def test_something_else_than_kafka_is_recognised() -> None:
    web_server = Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with (
        talk({ApiKey.API_VERSIONS: web_server}) as (_, client),
        pytest.raises(NoAnswer, match="plaintext port"),
    ):
        client.metadata([])


def test_an_answer_larger_than_allowed_is_not_received() -> None:
    huge = Raw((1 << 20).to_bytes(4, "big"))
    with (
        talk({ApiKey.LIST_OFFSETS: huge}, max_response_bytes=1 << 16) as (_, client),
        pytest.raises(MalformedResponse, match="1048576 bytes; from 4 to 65536 are read"),
    ):
        client.list_offsets({CLICKS: LATEST})


def test_an_answer_takes_no_more_memory_than_what_of_it_has_arrived() -> None:
    claim, arrived = (512 << 20).to_bytes(4, "big"), bytes(5 << 20)
    for api_key, sent, most in ((ApiKey.METADATA, b"", 4 << 20), (ApiKey.FETCH, arrived, 40 << 20)):
        with talk({api_key: HangUp(claim + sent)}, timeout_ms=1_000) as (_, client):
            with measured_peak() as peak, pytest.raises(NoAnswer):
                client.fetch(*CLICKS, 0)
            assert peak() < most, api_key


def test_an_answer_to_another_request_is_not_taken_for_ours() -> None:
    late = Raw(b"\x00\x00\x00\x05\x00\x00\x03\xe7\x00")
    with (
        talk({ApiKey.LIST_OFFSETS: late}) as (_, client),
        pytest.raises(MalformedResponse, match="answered request 999 where"),
    ):
        client.list_offsets({CLICKS: LATEST})


def test_a_malformed_response_is_named_and_the_next_call_connects_again() -> None:
    answers = {ApiKey.LIST_OFFSETS: in_turn(b"\x00\x00\x00\x00\x07", offsets())}
    with talk(answers) as (_, client):
        with pytest.raises(MalformedResponse, match="ListOffsets v11 response: topics at byte 10"):
            client.list_offsets({CLICKS: LATEST})
        assert client.list_offsets({CLICKS: LATEST}) == {CLICKS: FoundOffset(40, -1, 3)}


def test_an_answer_without_the_partition_is_no_answer_to_it() -> None:
    for api_key, call in (
        (ApiKey.PRODUCE, lambda client: client.produce(*CLICKS, b"batch")),
        (ApiKey.LIST_OFFSETS, lambda client: client.list_offsets({CLICKS: LATEST})),
    ):
        empty = {"responses": ()} if api_key is ApiKey.PRODUCE else {"topics": ()}
        with (
            talk({api_key: empty}) as (_, client),
            pytest.raises(RequestRefused, match="clicks-5: the answer does not mention it"),
        ):
            call(client)


def test_a_lost_answer_is_asked_for_again_where_that_does_no_harm() -> None:
    answers = {ApiKey.LIST_OFFSETS: in_turn(HangUp(b"\x00\x00"), HangUp(), offsets())}
    with talk(answers) as (broker, client):
        assert client.list_offsets({CLICKS: LATEST}) == {CLICKS: FoundOffset(40, -1, 3)}
        assert len(broker.asked(ApiKey.LIST_OFFSETS)) == 3


def test_a_call_that_is_interrupted_is_not_tried_again() -> None:
    """A thread that a stopped broker leaves asks nobody any more."""
    clients: list[Client] = []

    def interrupted(_: Any) -> HangUp:
        clients[0].brokers.interrupt()
        return HangUp()

    with talk({ApiKey.LIST_OFFSETS: interrupted}) as (broker, client):
        clients.append(client)
        with pytest.raises(NoAnswer):
            client.list_offsets({CLICKS: LATEST})
        assert len(broker.asked(ApiKey.LIST_OFFSETS)) == 1


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.METADATA])
def test_a_call_that_waits_for_a_broker_fails_when_it_is_interrupted(api_key: ApiKey) -> None:
    clients: list[Client] = []

    def interrupted(_: Any) -> Silence:
        clients[0].brokers.interrupt()
        return Silence()

    with talk({api_key: interrupted}) as (broker, client):
        clients.append(client)
        with pytest.raises(NoAnswer, match="the broker closed the connection"):
            client.metadata([])
        assert len([seen for seen in broker.seen if seen.api_key is api_key]) == 1


def test_a_request_on_which_the_broker_always_closes_is_given_up() -> None:
    with talk({ApiKey.LIST_OFFSETS: HangUp()}) as (broker, client):
        with pytest.raises(NoAnswer, match="did not answer ListOffsets"):
            client.list_offsets({CLICKS: LATEST})
        assert len(broker.asked(ApiKey.LIST_OFFSETS)) == 3


def test_a_produce_whose_answer_is_lost_is_not_sent_twice() -> None:
    with talk({ApiKey.PRODUCE: HangUp()}) as (broker, client):
        with pytest.raises(NoAnswer, match="it may have been carried out") as lost:
            client.produce(*CLICKS, b"batch")
        assert lost.value.sent
        assert len(broker.asked(ApiKey.PRODUCE)) == 1


@pytest.mark.parametrize(
    ("error", "requests"),
    [
        (ErrorCode.leader_not_available, 3),
        (ErrorCode.request_timed_out, 1),
        (ErrorCode.not_enough_replicas_after_append, 1),
        (ErrorCode.corrupt_message, 1),
        (ErrorCode.message_too_large, 1),
    ],
)
def test_a_refused_produce_is_sent_again_only_if_nothing_was_appended(
    error: ErrorCode, requests: int
) -> None:
    answers = {ApiKey.PRODUCE: in_turn(produced(error), produced(error), produced())}
    with talk(answers) as (broker, client):
        if requests == 1:
            with pytest.raises(RequestRefused, match=error.name.upper()) as refused:
                client.produce(*CLICKS, b"batch")
            assert refused.value.code is error
        else:
            assert client.produce(*CLICKS, b"batch").base_offset == 40
        assert len(broker.asked(ApiKey.PRODUCE)) == requests


def test_a_connection_closed_while_idle_is_replaced_before_anything_is_sent() -> None:
    with talk({ApiKey.PRODUCE: produced()}) as (broker, client):
        client.produce(*CLICKS, b"batch")
        broker.hang_up()
        time.sleep(0.05)  # until the end of the stream has come over
        assert client.produce(*CLICKS, b"batch").base_offset == 40


def test_rejected_records_come_with_their_reasons() -> None:
    answer = produced(
        ErrorCode.invalid_timestamp,
        error_message="out of range",
        record_errors=[
            {"batch_index": 3, "batch_index_error_message": "too late"},
            {"batch_index": 4, "batch_index_error_message": None},
        ],
    )
    with (
        talk({ApiKey.PRODUCE: answer}) as (_, client),
        pytest.raises(RecordsRejected, match="produce to clicks-5: out of range") as rejected,
    ):
        client.produce(*CLICKS, b"batch")
    assert rejected.value.code is ErrorCode.invalid_timestamp
    assert rejected.value.errors == ((3, "too late"), (4, "out of range"))


def test_with_acks_0_nothing_is_waited_for() -> None:
    with talk({ApiKey.PRODUCE: Silence()}) as (broker, client):
        assert set(client.produce(*CLICKS, b"batch", acks=0)) == {None}
        client.metadata([])  # served after the produce, on the same connection
        assert broker.asked(ApiKey.PRODUCE)[0].acks == 0


def test_a_moved_leader_is_found() -> None:
    moved = [1, 2]
    fenced = {ApiKey.LIST_OFFSETS: offsets(ErrorCode.not_leader_or_follower)}
    with ScriptedBroker({ApiKey.LIST_OFFSETS: offsets(offset=77)}, node_id=2) as new:
        script = {"leader": lambda: moved.pop(0) if len(moved) > 1 else moved[0], "others": [new]}
        with talk(fenced, script=script) as (_, client):
            assert client.list_offsets({CLICKS: LATEST}) == {CLICKS: FoundOffset(77, -1, 3)}


def test_a_leader_that_is_gone_is_looked_for_at_the_brokers_that_are_left() -> None:
    answers = {ApiKey.LIST_OFFSETS: offsets(offset=77)}
    first = ScriptedBroker({ApiKey.LIST_OFFSETS: offsets()}, node_id=2)
    leaders = {"now": 2}
    with (
        ScriptedBroker(answers, leader=lambda: leaders["now"], others=[first]) as left,
        Client(left.bootstrap) as client,
    ):
        with first:
            assert client.list_offsets({CLICKS: LATEST}) == {CLICKS: FoundOffset(40, -1, 3)}
        leaders["now"] = 1  # where it was, connections are refused
        assert client.list_offsets({CLICKS: LATEST}) == {CLICKS: FoundOffset(77, -1, 3)}


def test_all_bootstrap_servers_but_one_may_be_gone_when_a_connection_is_lost(
    dead_port: int,
) -> None:
    with ScriptedBroker(node_id=1) as broker:
        bootstrap = f"127.0.0.1:{dead_port},{broker.bootstrap}"
        with Client(bootstrap) as client:
            client.metadata()
            broker.hang_up()
            assert set(client.metadata().brokers) == {1}


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
    ],
)
def test_while_leaders_move_every_call_is_repeated_with_fresh_metadata(error: ErrorCode) -> None:
    fetched = b"".join(
        encode_fetch_response(12, [FetchedTopic("clicks", None, [FetchedPartition(5)])])
    )
    moving = b"".join(
        encode_fetch_response(
            12, [FetchedTopic("clicks", None, [FetchedPartition(5, error_code=error)])]
        )
    )
    answers = {
        ApiKey.FETCH: in_turn(moving, fetched),
        ApiKey.LIST_OFFSETS: in_turn(offsets(error), offsets()),
        ApiKey.PRODUCE: in_turn(produced(error), produced()),
    }
    with talk(answers) as (broker, client):
        client.fetch(*CLICKS, 40)
        client.list_offsets({CLICKS: LATEST})
        client.produce(*CLICKS, b"batch")
        # Each failure makes the client ask who leads.
        assert len(broker.asked(ApiKey.METADATA)) == 4
        for api_key in answers:
            assert len(broker.asked(api_key)) == 2


def test_one_leader_that_moves_costs_the_others_no_second_request() -> None:
    with ScriptedBroker({ApiKey.LIST_OFFSETS: offsets()}, node_id=2) as other:
        there = {
            "topics": [{"name": "views", "partitions": [offsets()["topics"][0]["partitions"][0]]}]
        }
        other.answers = {ApiKey.LIST_OFFSETS: there}
        moving = in_turn(offsets(ErrorCode.not_leader_or_follower), offsets())
        with talk({ApiKey.LIST_OFFSETS: moving}, script={"others": [other]}) as (broker, client):
            broker.leader_of = {"views": 2}
            found = client.list_offsets({CLICKS: LATEST, ("views", 5): LATEST})
            assert {tp: each and each.offset for tp, each in found.items()} == {
                CLICKS: 40,
                ("views", 5): 40,
            }
            assert len(broker.asked(ApiKey.LIST_OFFSETS)) == 2
            assert len(other.asked(ApiKey.LIST_OFFSETS)) == 1


def test_an_error_that_may_pass_is_given_up_on_when_the_time_is_over() -> None:
    answers = {ApiKey.LIST_OFFSETS: offsets(ErrorCode.leader_not_available)}
    with talk(answers, timeout_ms=1_000) as (broker, client):
        with pytest.raises(RequestRefused, match="offsets of clicks-5: LEADER_NOT_AVAILABLE"):
            client.list_offsets({CLICKS: LATEST})
        assert len(broker.asked(ApiKey.LIST_OFFSETS)) > 2


def test_an_unknown_partition_is_reported_with_how_many_there_are() -> None:
    with (
        talk() as (_, client),
        pytest.raises(RequestRefused, match="partition 9 of topic clicks, which has 1"),
    ):
        client.fetch("clicks", 9, 0)


def test_an_unknown_error_number_is_reported_as_it_is() -> None:
    with (
        talk({ApiKey.LIST_OFFSETS: offsets(30_000)}) as (_, client),
        pytest.raises(RequestRefused, match=r"unknown to this client \(30000\)") as refused,
    ):
        client.list_offsets({CLICKS: LATEST})
    assert refused.value.code is ErrorCode.unknown_server_error


def test_a_broker_that_is_too_old_is_named_with_what_it_answers() -> None:
    old = {ApiKey.FETCH: Versions(0, 3), ApiKey.LIST_OFFSETS: Versions(0, 5)}
    with talk(script={"versions": old}) as (_, client):
        with pytest.raises(RequestRefused, match=r"Fetch in version 4 to 12 is needed.* 0 to 3"):
            client.fetch("clicks", 5, 0)
        with pytest.raises(RequestRefused, match="ListOffsets in version 7 to 11") as refused:
            client.list_offsets({CLICKS: -3})
    assert refused.value.code is ErrorCode.unsupported_version


def test_a_broker_that_knows_only_the_first_api_versions_is_asked_again_in_that() -> None:
    with talk(script={"versions": {ApiKey.API_VERSIONS: Versions(0, 2)}}) as (broker, client):
        client.metadata([])
        assert [s.version for s in broker.seen if s.api_key is ApiKey.API_VERSIONS] == [2]


def test_an_advertised_address_that_does_not_answer_is_reported_as_such(dead_port: int) -> None:
    with (
        talk(script={"advertised_port": dead_port}, timeout_ms=1_000) as (_, client),
        pytest.raises(NoAnswer) as absent,
    ):
        client.list_offsets({CLICKS: LATEST})
    assert str(absent.value) == (
        f"broker 1 does not answer: 127.0.0.1:{dead_port} (connection refused) "
        "(its advertised.listeners)"
    )


def test_large_fetched_records_are_a_view_and_not_a_copy() -> None:
    records = bytes(range(256)) * (5 << 12)  # more than is received at first
    partition = FetchedPartition(5, high_watermark=900, last_stable_offset=900, records=records)
    body = b"".join(encode_fetch_response(12, [FetchedTopic("clicks", None, [partition])]))
    with talk({ApiKey.FETCH: body}) as (broker, client):
        fetched = client.fetch("clicks", 5, 40)
    assert isinstance(fetched.records, memoryview)
    assert fetched.records == records
    assert (fetched.high_watermark, fetched.aborted) == (900, [])
    (asked,) = broker.asked(ApiKey.FETCH)
    assert asked.topics[0].partitions[0].fetch_offset == 40


def test_a_long_poll_may_take_longer_than_the_timeout_of_a_call() -> None:
    def slow(_: Any) -> bytes:
        time.sleep(1.2)
        partition = FetchedPartition(5, high_watermark=900)
        return b"".join(encode_fetch_response(12, [FetchedTopic("clicks", None, [partition])]))

    with talk({ApiKey.FETCH: slow}, timeout_ms=1_000) as (_, client):
        assert client.fetch("clicks", 5, 40, max_wait_ms=60_000).high_watermark == 900


def test_refused_topics_are_named_together() -> None:
    refused = {
        "topics": [
            {
                "name": "a",
                "topic_id": None,
                "error_code": 36,
                "error_message": "Topic 'a' already exists.",
            },
            {"name": "b", "topic_id": None, "error_code": 0},
            {"name": "c", "topic_id": None, "error_code": 17, "error_message": None},
        ]
    }
    with (
        talk({ApiKey.CREATE_TOPICS: refused}) as (_, client),
        pytest.raises(RequestRefused) as several,
    ):
        client.create_topics({"a": 1, "b": 1, "c": 1})
    assert several.value.code is ErrorCode.topic_already_exists
    assert str(several.value) == (
        "topic a: Topic 'a' already exists. (TOPIC_ALREADY_EXISTS); "
        "topic c: INVALID_TOPIC_EXCEPTION"
    )
