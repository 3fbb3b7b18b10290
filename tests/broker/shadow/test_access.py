"""Rights and quotas of the source are those of the shadow; what cannot be copied is named."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import rights_matrix as matrix
from hypothesis import given
from hypothesis import strategies as st
from overrides import override
from patience import PATIENCE_S, eventually
from running_broker import MakeBroker, RunningBroker, a_broker
from scripted_source import ScriptedSource
from secrets_kept import password

from horolog.broker import AccessAtSource, FollowedAccess, entry_id, quota_digest
from horolog.client import Client
from horolog.metadata import MetadataStore
from horolog.rights import AclEntry, AclFilter
from horolog.security import ScramMechanism
from horolog.wire import FOLLOWING, AclOperation, AclPattern, AclPermission, AclResource, ApiKey

SECURED = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
ALICE = frozenset({("user", "alice")})
BOB = frozenset({("user", "bob"), ("client-id", None)})
RATE, SHARE = "producer_byte_rate", "request_percentage"

source = a_broker("t", **SECURED)


def entry(
    principal: str, name: str = "t", permission: AclPermission = AclPermission.ALLOW
) -> AclEntry:
    return AclEntry(
        AclResource.TOPIC, name, AclPattern.LITERAL, principal, "*", AclOperation.READ, permission
    )


def start_shadow(
    source: RunningBroker, make_broker: MakeBroker, path: Path, **settings: Any
) -> RunningBroker:
    given = {"horolog_follow": source.address, "node_id": "2", **SECURED, **settings}
    return make_broker(log_dir=path / "shadow", clock=source.clock, **given)


@pytest.fixture
def shadow(source: RunningBroker, make_broker: MakeBroker, tmp_path: Path) -> RunningBroker:
    return start_shadow(source, make_broker, tmp_path)


def quotas(broker: RunningBroker) -> dict[Any, float]:
    return {(its.entity, its.key): its.value for its in broker.client.quotas.list()}


def has(broker: RunningBroker, *entries: AclEntry) -> bool:
    return eventually(lambda: broker.client.acls.list() == sorted(entries))


def notes(broker: RunningBroker) -> str:
    following = broker.client.ask(FOLLOWING)
    assert following is not None
    return "\n".join(following.notes)


def test_entries_are_added_and_removed_as_at_the_source_and_those_of_the_shadow_stay(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    alice, bob, zoe = map(entry, ("User:alice", "User:bob", "User:zoe"))
    source.client.acls.add([alice, bob])
    shadow.client.acls.add([zoe])
    assert has(shadow, alice, bob, zoe)
    source.client.acls.remove(AclFilter(principal="User:alice"))
    assert has(shadow, bob, zoe)
    shadow.client.acls.remove(AclFilter(principal="User:bob"))
    assert has(shadow, bob, zoe), "what the source has comes back"


def test_what_the_source_lost_while_the_shadow_was_killed_goes(
    source: RunningBroker, make_broker: MakeBroker, tmp_path: Path
) -> None:
    shadow = start_shadow(source, make_broker, tmp_path)
    alice, zoe = map(entry, ("User:alice", "User:zoe"))
    source.client.acls.add([alice])
    source.client.quotas.change(ALICE, {RATE: 1000.0})
    shadow.client.acls.add([zoe])
    shadow.client.quotas.change(BOB, {SHARE: 50.0})
    assert has(shadow, alice, zoe)
    assert eventually(lambda: quotas(shadow) == {(ALICE, RATE): 1000.0, (BOB, SHARE): 50.0})
    shadow.kill()
    source.client.acls.remove(AclFilter())
    source.client.quotas.change(ALICE, {RATE: None})
    shadow = start_shadow(source, make_broker, tmp_path)
    assert has(shadow, zoe)
    assert eventually(lambda: quotas(shadow) == {(BOB, SHARE): 50.0})


def test_quotas_have_the_values_of_the_source(source: RunningBroker, shadow: RunningBroker) -> None:
    shadow.client.quotas.change(ALICE, {RATE: 1.0})
    source.client.quotas.change(ALICE, {RATE: 1000.0})
    source.client.quotas.change(BOB, {SHARE: 20.0})
    assert eventually(lambda: quotas(shadow) == {(ALICE, RATE): 1000.0, (BOB, SHARE): 20.0})
    source.client.quotas.change(ALICE, {RATE: 2000.0})
    source.client.quotas.change(BOB, {SHARE: None})
    assert eventually(lambda: quotas(shadow) == {(ALICE, RATE): 2000.0})
    source.client.quotas.change(ALICE, {RATE: None})
    assert eventually(lambda: quotas(shadow) == {})


def test_after_the_promotion_rights_are_the_shadows_own(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    alice, bob = map(entry, ("User:alice", "User:bob"))
    source.client.acls.add([alice])
    assert has(shadow, alice)
    assert eventually(lambda: not notes(shadow))
    shadow.client.promote(None)
    source.client.acls.remove(AclFilter())
    shadow.client.acls.add([bob])
    shadow.restart(crash=True)
    assert has(shadow, alice, bob)
    assert not notes(shadow)


def test_a_former_leader_loses_what_the_new_one_has_taken_from_users(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    alice, bob = map(entry, ("User:alice", "User:bob"))
    source.client.acls.add([alice, bob])
    assert has(shadow, alice, bob)
    assert eventually(lambda: "t" in topics(shadow))
    shadow.client.promote(None)
    source.demote(shadow)
    assert eventually(lambda: not notes(source))
    shadow.client.acls.remove(AclFilter(principal="User:alice"))
    assert has(source, bob)


def topics(broker: RunningBroker) -> set[str]:
    following = broker.client.ask(FOLLOWING)
    assert following is not None
    return {its.topic for its in following.entries if its.offsets_behind == 0}


def test_users_without_a_password_here_are_named(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    source.client.users.put("alice", password("alice"), ScramMechanism.SHA_512)
    source.client.users.put("bob", password("paper"), ScramMechanism.SHA_256)
    assert eventually(lambda: notes(shadow).endswith("`horolog users add`: alice, bob"))
    shadow.client.users.put("bob", password("paper"), ScramMechanism.SHA_512)
    shadow.client.users.put("alice", password("another"), ScramMechanism.SHA_512)
    assert eventually(lambda: notes(shadow).endswith(": bob")), "by another mechanism"
    shadow.client.users.put("bob", password("paper"), ScramMechanism.SHA_256)
    assert eventually(lambda: not notes(shadow))


def test_a_shadow_that_obeys_no_entries_copies_none(
    source: RunningBroker, make_broker: MakeBroker, tmp_path: Path
) -> None:
    shadow = start_shadow(source, make_broker, tmp_path, authorizer_class_name="", super_users="")
    assert eventually(lambda: not notes(shadow)), "the source has none"
    source.client.acls.add([entry("User:alice")])
    source.client.quotas.change(ALICE, {RATE: 1000.0})
    assert eventually(lambda: quotas(shadow) == {(ALICE, RATE): 1000.0})
    assert eventually(lambda: "authorizer.class.name" in notes(shadow))
    shadow.restart()  # refused, if its directory had entries that it does not obey


def test_what_the_source_does_not_describe_is_named_once_and_stays(
    make_broker: MakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = make_broker(**matrix.OURS)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password="{matrix.PASSWORD(matrix.ADMIN)}";'
        ),
    }
    follower = {**login, "sasl.jaas.config": login["sasl.jaas.config"].replace("admin", "u0")}
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in follower.items()))
    describes = [
        AclEntry(
            AclResource.CLUSTER,
            "kafka-cluster",
            AclPattern.LITERAL,
            "User:u0",
            "*",
            operation,
            AclPermission.ALLOW,
        )
        for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    ]
    with Client(source.address, security=login) as admin:
        admin.acls.add(describes)
        shadow = start_shadow(source, make_broker, tmp_path, horolog_follow_config=str(properties))
        assert has(shadow, *describes)
        assert eventually(lambda: not notes(shadow))
        with caplog.at_level(logging.WARNING):
            admin.acls.remove(AclFilter())
            needs = "access control entries and users of the source: this broker's principal there"
            assert eventually(lambda: f"{needs} needs DESCRIBE on" in notes(shadow))
            assert eventually(lambda: "quotas of the source: this" in notes(shadow))
            shadow.client.quotas.change(ALICE, {RATE: 1.0})
            assert eventually(lambda: len(shadow.client.quotas.list()) == 1)
        assert has(shadow, *describes), "what is not described any more stays"
        said = [record for record in caplog.records if needs in record.getMessage()]
        assert len(said) == 1


def test_a_source_that_follows_this_broker_gives_none(
    source: RunningBroker, shadow: RunningBroker
) -> None:
    assert eventually(lambda: "t" in topics(shadow))
    shadow.client.promote(["t"])
    source.demote(shadow, "t")
    assert eventually(lambda: "it follows this broker itself" in notes(shadow))
    source.client.acls.add([entry("User:alice")])
    assert not shadow.client.acls.list()


def test_a_source_with_too_many_entries_is_named(
    source: RunningBroker, shadow: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.broker", MOST_COPIED=1)
    source.client.acls.add([entry("User:alice"), entry("User:bob")])
    assert eventually(lambda: "it has 2; at most 1 are" in notes(shadow))
    assert not shadow.client.acls.list()


def test_invalid_quotas_and_unknown_numbers_of_a_source_do_no_harm(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    def quota(name: str, key: str, value: float) -> dict[str, Any]:
        return {
            "entity": [{"entity_type": "user", "entity_name": name}],
            "values": [{"key": key, "value": value}],
        }

    odd = {
        "resource_type": 99,
        "resource_name": "x" * 300,
        "pattern_type": 77,
        "acls": [{"principal": "", "host": "10.0.0.0/999", "operation": -5, "permission_type": 9}],
    }
    with ScriptedSource("t") as scripted:
        scripted.broker.answers |= {
            ApiKey.DESCRIBE_ACLS: {"error_code": 0, "error_message": None, "resources": [odd, odd]},
            ApiKey.DESCRIBE_CLIENT_QUOTAS: {
                "error_code": 0,
                "error_message": None,
                "entries": [
                    quota("a", RATE, float("nan")),
                    quota("b", "unknown", 1.0),
                    quota("alice", RATE, 1000.0),
                    quota("c", RATE, -1.0),
                    {"entity": [], "values": [{"key": RATE, "value": 1.0}]},
                ],
            },
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {
                "error_code": 0,
                "error_message": None,
                "results": [
                    {
                        "user": "a\nb\x1b",
                        "error_code": 0,
                        "error_message": None,
                        "credential_infos": [{"mechanism": 99, "iterations": -1}],
                    }
                ],
            },
        }
        settings = {"horolog_follow": scripted.address, "node_id": "2", **SECURED}
        shadow = make_broker(log_dir=tmp_path / "shadow", **settings)
        assert eventually(lambda: quotas(shadow) == {(ALICE, RATE): 1000.0})
        assert eventually(lambda: len(shadow.client.acls.list()) == 1)
        assert eventually(lambda: "quotas of the source: one of them" in notes(shadow))
        assert "\x1b" not in notes(shadow)
        size = sum(path.stat().st_size for path in (tmp_path / "shadow").rglob("*.log"))
        asked = len(scripted.asked(ApiKey.DESCRIBE_CLIENT_QUOTAS))
        assert eventually(lambda: len(scripted.asked(ApiKey.DESCRIBE_CLIENT_QUOTAS)) > asked + 3)
        after = sum(path.stat().st_size for path in (tmp_path / "shadow").rglob("*.log"))
        assert after == size, "what is so already is not written again"
        shadow.restart(crash=True)
        assert len(shadow.client.acls.list()) == 1


PRINCIPALS = st.sets(st.sampled_from("abcd"))
RATES = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1.0, 2.0]))

plain = a_broker(scope="module", **SECURED)


def seen(principals: Iterable[str], rates: dict[str, float]) -> AccessAtSource:
    entries = [entry(f"User:{name}") for name in principals]
    values = {(frozenset({("user", name)}), RATE): value for name, value in rates.items()}
    return AccessAtSource(
        "c",
        {entry_id("c", its): its for its in entries},
        values,
        frozenset(quota_digest(*key) for key in values),
        (),
        {},
    )


@given(st.lists(st.tuples(PRINCIPALS, RATES, st.booleans())), PRINCIPALS, RATES)
def test_any_course_of_a_source_ends_in_its_state_and_what_only_the_shadow_has(
    plain: RunningBroker,
    course: list[tuple[set[str], dict[str, float], bool]],
    ours: set[str],
    our_rates: dict[str, float],
) -> None:
    parts = plain.broker
    rights, values = parts.access.rights, parts.quotas.quotas

    async def run() -> None:
        await parts.controller.delete_entries([its_id for its_id, _ in rights.items()])
        gone = {(entity, RATE): None for entity in list(values.by_entity())}
        await parts.controller.change_quotas(gone, ())
        own = {uuid4(): entry(f"User:{name}") for name in ours}
        await parts.controller.change_entries(own, ())
        mine = {(frozenset({("user", name)}), RATE): value for name, value in our_rates.items()}
        await parts.controller.change_quotas(mine)
        copied = frozenset[str]()
        access = FollowedAccess(parts.controller, rights, {}, values, copied)
        left, left_rates = set(ours), dict(our_rates)
        for principals, rates, restarts in course:
            if restarts:
                access = FollowedAccess(parts.controller, rights, {}, values, copied)
            now = seen(principals, rates)
            await access.apply(now)
            copied = now.copied_quotas
            left -= principals  # the source's from now on
            for name in rates:
                left_rates.pop(name, None)
            names = [its.principal.removeprefix("User:") for _, its in rights.items()]
            assert sorted(names) == sorted(left | principals)
            found = {
                name: by_key[RATE]
                for entity, by_key in values.by_entity().items()
                for _, name in entity
            }
            assert found == {**left_rates, **rates}

    plain.run(run())


def test_a_copy_that_is_cancelled_in_its_midst_is_whole(
    plain: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, loop_is_free, goes_on = plain.broker, threading.Event(), threading.Event()
    rights, values = parts.access.rights, parts.quotas.quotas

    def slowly(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*given: Any) -> None:
            loop_is_free.set()
            assert goes_on.wait(PATIENCE_S)
            change(*given)

        return changed

    for name in ("change_entries", "change_quotas"):
        monkeypatch.setattr(MetadataStore, name, slowly(getattr(MetadataStore, name)))

    async def run() -> None:
        access = FollowedAccess(parts.controller, rights, {}, values, frozenset())
        for now in (seen(["cancelled"], {}), seen(["cancelled"], {"cancelled": 1.0})):
            loop_is_free.clear()
            goes_on.clear()
            copying = asyncio.create_task(access.apply(now))
            await asyncio.to_thread(loop_is_free.wait, PATIENCE_S)
            copying.cancel()
            asyncio.get_running_loop().call_soon(goes_on.set)
            with pytest.raises(asyncio.CancelledError):
                await copying

    plain.run(run())
    assert entry("User:cancelled") in plain.client.acls.list()
    assert quotas(plain)[frozenset({("user", "cancelled")}), RATE] == 1.0
