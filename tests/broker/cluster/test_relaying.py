"""Requests that change the cluster are passed on to the controllers as they are."""

import asyncio
import struct
from typing import Any

import pytest
from relayed import Relaying

from horolog.broker.cluster.relaying import (
    COORDINATED,
    RELAYED,
    SPLIT,
    packed_address,
    packed_principal,
)
from horolog.errors import ErrorCode, HorologError
from horolog.network import Hangup, Peer
from horolog.wire import ApiKey, Versions
from horolog.wire.error_responses import error_response

WHOLE = sorted(RELAYED - SPLIT)
ADDRESS = bytes((192, 0, 2, 7))


@pytest.mark.parametrize("key", WHOLE, ids=[key.title for key in WHOLE])
def test_every_version_of_it_reaches_the_controller_and_the_client_unchanged(
    relaying: Relaying, key: ApiKey
) -> None:
    def answer(relayed: Any) -> Any:
        its = relayed.header
        return error_response(key, its.api_version, relayed.body, 88, "of the controller")

    relaying.controllers.answer = answer
    for version in range(key.versions.min, key.versions.max + 1):
        body = relaying.decoded(key, version)
        seen = relaying.controllers.seen[-1]
        assert seen.frame == relaying.frame(key, version), "undecoded, with its own header"
        assert seen.header[:4] == (key, version, 77, "me")
        assert (seen.principal, seen.address) == (packed_principal("User:alice"), ADDRESS)
        assert "88" in repr(body)
    assert len(relaying.controllers.seen) == key.versions.max + 1 - key.versions.min


@pytest.mark.parametrize("key", WHOLE, ids=[key.title for key in WHOLE])
def test_without_a_controller_everything_in_it_is_refused(relaying: Relaying, key: ApiKey) -> None:
    relaying.controllers.failure = HorologError("no controller answers")
    for version in range(key.versions.min, key.versions.max + 1):
        body = relaying.decoded(key, version)
        expected = error_response(key, version, body, ErrorCode.request_timed_out, "")
        code = getattr(body, "error_code", None)
        if code is not None:
            assert code == ErrorCode.request_timed_out
        else:
            assert str(int(ErrorCode.request_timed_out)) in repr(body) or not any(expected.values())


def test_no_handler_of_the_broker_alone_answers_what_is_relayed(relaying: Relaying) -> None:
    relaying.controllers.answer = lambda _: {
        "throttle_time_ms": 0,
        "topics": [{"name": "new", "error_code": 0}],
    }
    fields = {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}]}
    assert relaying.decoded(ApiKey.CREATE_TOPICS, 4, fields).topics[0].error_code == 0
    assert "new" not in relaying.broker.broker.topics


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ErrorCode.cluster_authorization_failed, id="this broker may not relay"),
        pytest.param(ErrorCode.invalid_request, id="not forwardable"),
        pytest.param(ErrorCode.principal_deserialization_failure, id="principal"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00\x00\x00", id="cut"),
        pytest.param(struct.pack(">ib", 76, 0), id="another request"),
    ],
)
def test_an_envelope_that_fails_is_an_error_of_the_broker(relaying: Relaying, answer: Any) -> None:
    relaying.controllers.answer = lambda _: answer
    body = relaying.decoded(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 9})
    assert body.error_code == ErrorCode.unknown_server_error


def test_a_version_that_the_controller_lacks_ends_the_connection(relaying: Relaying) -> None:
    relaying.controllers.answer = lambda _: ErrorCode.unsupported_version
    with pytest.raises(Hangup, match="CreateTopics v7 is not served by the active controller"):
        relaying.ask(ApiKey.CREATE_TOPICS, 7)
    relaying.controllers.versions = {ApiKey.CREATE_TOPICS: Versions(2, 6)}
    seen = len(relaying.controllers.seen)
    for key, version in ((ApiKey.CREATE_TOPICS, 7), (ApiKey.UNREGISTER_CONTROLLER, 0)):
        with pytest.raises(Hangup, match="not served by the active controller"):
            relaying.ask(key, version)
    assert len(relaying.controllers.seen) == seen


def test_clients_are_offered_the_versions_that_both_know(relaying: Relaying) -> None:
    def offered() -> dict[int, Versions]:
        keys = relaying.decoded(ApiKey.API_VERSIONS, 3).api_keys
        return {it.api_key: Versions(it.min_version, it.max_version) for it in keys}

    before = offered()
    assert set(before) >= RELAYED
    assert before[ApiKey.CREATE_TOPICS] == ApiKey.CREATE_TOPICS.versions
    relaying.controllers.versions = {
        ApiKey.CREATE_TOPICS: Versions(2, 9),
        ApiKey.ALTER_CONFIGS: Versions(0, 1),
        ApiKey.ADD_RAFT_VOTER: Versions(5, 6),
    }
    after = offered()
    assert set(after) & RELAYED == {ApiKey.CREATE_TOPICS, ApiKey.ALTER_CONFIGS}
    assert ApiKey.DESCRIBE_DELEGATION_TOKEN in after, "which is answered by each broker"
    assert after[ApiKey.CREATE_TOPICS] == (2, 7)
    assert after[ApiKey.ALTER_CONFIGS] == (0, 1)
    assert {it: after[it] for it in after if it not in RELAYED} == {
        it: before[it] for it in before if it not in RELAYED
    }


def test_clients_without_a_name_are_given_no_tokens(relaying: Relaying) -> None:
    relaying.peer = Peer(relaying.broker.bound[0], "192.0.2.7")
    relaying.peer.authenticate("User:ANONYMOUS")
    body = relaying.decoded(ApiKey.CREATE_DELEGATION_TOKEN, 3, {"renewers": []})
    assert body.error_code == ErrorCode.delegation_token_request_not_allowed
    relaying.peer = Peer(relaying.broker.bound[0], "192.0.2.7")
    relaying.peer.authenticate("User:alice")
    body = relaying.decoded(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
    assert body.error_code == ErrorCode.delegation_token_auth_disabled
    assert not relaying.controllers.seen


def test_principals_and_addresses_are_packed_as_kafka_packs_them() -> None:
    assert packed_principal("User:alice") == b"\x00\x00\x05User\x06alice\x00\x00"
    assert packed_principal("User:CN=a:b") == b"\x00\x00\x05User\x07CN=a:b\x00\x00"
    assert packed_address("192.0.2.7") == ADDRESS
    assert packed_address("::ffff:192.0.2.7") == ADDRESS
    assert packed_address("fe80::1%eth0") == bytes.fromhex("fe80" + "00" * 13 + "01")
    assert packed_address("") == bytes(4)


def test_a_topic_that_a_client_named_is_asked_for_once(relaying: Relaying) -> None:
    relaying.controllers.answer = lambda _: {"topics": []}
    relay = relaying.broker.broker.relay

    async def ask() -> None:
        for name in ("a", "a", "b"):
            relay.create_topic(name, "me", relaying.peer)
        for _ in range(5):
            await asyncio.sleep(0)

    relaying.broker.run(ask())
    names = [it.body.topics[0].name for it in relaying.controllers.seen]
    assert names == ["a", "b"]
    first = relaying.controllers.seen[0]
    assert (first.header.client_id, first.body.topics[0].num_partitions) == ("me", -1)
    assert first.principal == packed_principal("User:alice")


@pytest.mark.parametrize("key", sorted(COORDINATED), ids=lambda key: key.title)
def test_groups_and_transactions_are_coordinated_elsewhere(relaying: Relaying, key: ApiKey) -> None:
    """Shortcuts are no way around that."""
    for version in range(key.versions.min, key.versions.max + 1):
        fields = relaying.fields[key]
        fields = dict(fields(version) if callable(fields) else fields)
        if key is ApiKey.INIT_PRODUCER_ID:
            fields["transactional_id"] = "x"
        if key is ApiKey.ADD_PARTITIONS_TO_TXN:
            fields["v3_and_below_topics"] = [{"name": "t", "partitions": [0]}]
        answer = repr(relaying.decoded(key, version, fields))
        assert "error_code=16," in answer or "error_code=16)" in answer, (version, answer)
    groups = relaying.broker.broker.groups
    assert not groups.all()


def test_producers_without_a_transactional_id_need_no_coordinator(relaying: Relaying) -> None:
    body = relaying.decoded(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    )
    assert (body.error_code, body.producer_epoch) == (0, 0)


def test_lists_of_groups_and_transactions_are_empty(relaying: Relaying) -> None:
    assert relaying.decoded(ApiKey.LIST_GROUPS, 5).error_code == 0
    assert relaying.decoded(ApiKey.LIST_TRANSACTIONS, 1).error_code == 0
