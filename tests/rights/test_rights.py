"""What access control entries allow, by the answers and rules of Apache Kafka's authorizer."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rights_lines import answers

from golden import answers as golden_answers
from horolog.errors import CorruptBatch
from horolog.rights import AclEntry, AclFilter, Decision, Rights
from horolog.wire import AclOperation, AclPattern, AclPermission, AclResource

TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
ALL, READ, WRITE, DESCRIBE = (
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
)
HERE = "127.0.0.1"


def entry(
    name="t",
    operation=READ,
    permission=ALLOW,
    *,
    kind=TOPIC,
    pattern=LITERAL,
    principal="User:a",
    host="*",
):
    return AclEntry(kind, name, pattern, principal, host, operation, permission)


def rights_of(*entries, **given):
    rights = Rights(**given)
    for number, one in enumerate(entries):
        rights.add(UUID(int=number), one)
    return rights


def allows(rights, name="t", operation=READ, principal="User:a", host=HERE, kind=TOPIC):
    return rights.decide(principal, host, operation, kind, name).is_allowed


def test_random_entries_are_decided_as_by_kafka():
    asked = golden_answers("rights")
    assert list(answers(line for line, _ in asked)) == [told for _, told in asked]


def test_without_entries_nothing_is_allowed():
    assert Rights().decide("User:a", HERE, READ, TOPIC, "t") == Decision(False, "DefaultDeny")


def test_a_resource_without_entries_is_free_where_that_is_set():
    rights = rights_of(entry("other", principal="User:b"), allow_without_entries=True)
    assert allows(rights, "t")
    assert not allows(rights, "other")


@pytest.mark.parametrize("implying", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_a_denial_denies_nothing_else(implying):
    assert allows(rights_of(entry(operation=implying)), operation=DESCRIBE)
    denied = rights_of(entry(operation=implying, permission=DENY), entry(operation=DESCRIBE))
    assert allows(denied, operation=DESCRIBE)


@pytest.mark.parametrize("number", [0, 1, 4, 99])
def test_an_entry_with_an_unknown_permission_denies_as_at_kafka(number):
    """No request makes one, but a directory may have it."""
    rights = rights_of(entry(), entry(permission=number))
    assert not rights.decide("User:a", HERE, READ, TOPIC, "t").is_allowed
    assert rights.decide("User:a", HERE, DESCRIBE, TOPIC, "t").is_allowed


def test_a_wildcard_covers_names_that_begin_with_a_star():
    """Apache Kafka passes such entries over, so that a denial of every name denies too little."""
    rights = rights_of(entry("*"), entry("*", WRITE, DENY), entry("*x", WRITE))
    assert allows(rights, "*x")
    assert not allows(rights, "*x", WRITE)


def test_a_wildcard_of_a_prefix_is_a_name():
    rights = rights_of(entry("*", pattern=PREFIXED))
    assert allows(rights, "*x")
    assert not allows(rights, "x")


def test_prefixes_do_not_shadow_each_other():
    rights = rights_of(
        entry("foobar", WRITE, pattern=PREFIXED),
        entry("fooa", WRITE, pattern=PREFIXED),
        entry("f", READ, pattern=PREFIXED),
    )
    assert allows(rights, "foobar")


def test_a_principal_is_compared_with_its_type():
    rights = rights_of(entry(principal="user:a"), entry("u", principal="Robot:*"))
    assert not allows(rights)
    assert not allows(rights, "u", principal="Robot:r2")


def test_an_entry_for_every_user_covers_principals_of_other_types():
    assert allows(rights_of(entry(principal="User:*")), principal="Robot:r2")


@pytest.mark.parametrize(
    ("host", "client", "is_in"),
    [
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.7/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("::/0", "0:0:0:0:0:0:0:1", True),
        ("::/0", "10.0.0.1", False),
        ("0.0.0.0/0", "0:0:0:0:0:0:0:1", False),
        ("10.0.0.0/33", "10.0.0.1", False),
        ("[2001:db8::]/32", "2001:db8:0:0:0:0:0:7", True),
        ("fe80::/16", "fe80:0:0:0:0:0:0:1%eth0", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_a_range_of_addresses_covers_its_clients(host, client, is_in):
    assert allows(rights_of(entry(host=host)), host=client) is is_in


def test_an_entry_that_is_removed_counts_no_more_and_makes_a_new_generation():
    rights = rights_of(entry(pattern=PREFIXED), entry("ta", WRITE, pattern=PREFIXED))
    before = rights.generation
    rights.remove(UUID(int=0))
    assert not allows(rights)
    assert allows(rights, "tab", WRITE)
    assert rights.generation > before
    with pytest.raises(CorruptBatch, match="no access control entry"):
        rights.remove(UUID(int=0))


def test_an_entry_of_an_id_that_is_there_replaces_it():
    rights = rights_of(entry())
    rights.add(UUID(int=0), entry(operation=WRITE))
    assert (allows(rights), allows(rights, operation=WRITE), len(rights)) == (False, True, 1)


def test_a_super_user_may_do_everything():
    rights = rights_of(entry(permission=DENY, principal="User:root"), super_users=["User:root"])
    assert rights.decide("User:root", HERE, READ, TOPIC, "t").rule == "SuperUser"
    assert not allows(rights, principal="User:other")


# Entries that hide, cover or outrank each other, each set with questions and answers.

BOB, EVERYONE, ALICE = "User:bob", "User:*", "User:alice"
DELETE, ALTER, CREATE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.CREATE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
OF_ALL = [
    entry("foo", ALL, DENY, principal=ALICE),
    entry("foo", READ, pattern=PREFIXED, principal=ALICE),
    entry("foo", ALL, DENY, principal=EVERYONE),
    entry("foo", DESCRIBE, pattern=PREFIXED, principal=EVERYONE),
]
SHARED = [
    entry("foo", ALL, principal=EVERYONE),
    entry("bar", ALL, pattern=PREFIXED, principal=ALICE),
    entry("baz", ALL, principal=BOB),
]
OTHER_HOST, THIRD_HOST = "192.168.1.1", "192.168.1.2"
HOSTS = [
    entry("foo", READ, DENY, principal=ALICE, host=OTHER_HOST),
    entry("foo", READ, principal=ALICE),
    entry("bar", READ, principal=BOB, host=THIRD_HOST),
    entry("bar", DESCRIBE, principal=EVERYONE, host=HERE),
]
MANY = [
    entry("green2", READ, principal=EVERYONE),
    entry("green", READ, pattern=PREFIXED, principal=BOB),
    entry("betamax4", READ, principal=BOB),
    entry("betamax", READ, principal=BOB),
    entry("beta", READ, pattern=PREFIXED, principal=EVERYONE),
    entry("alpha", READ, pattern=PREFIXED, principal=EVERYONE),
    entry("alp", READ, DENY, pattern=PREFIXED, principal=BOB),
    entry("*", WRITE, kind=GROUP, principal=BOB),
    entry("wheel", WRITE, DENY, kind=GROUP, principal=EVERYONE),
]
PREFIXES = [
    entry("fooa", ALL, pattern=PREFIXED, principal=ALICE),
    entry("foobar", ALL, principal=BOB),
    entry("f", ALL, pattern=PREFIXED, principal=BOB),
]


@pytest.mark.parametrize(
    ("entries", "principal", "host", "questions"),
    [
        (OF_ALL, ALICE, HERE, "-WRITE foo, -READ foo, -DESCRIBE foo, +READ foobar"),
        (OF_ALL, BOB, HERE, "-DESCRIBE foo, -READ foo, +DESCRIBE foobaz, -READ foobaz"),
        (SHARED, ALICE, HERE, "+WRITE foo, +DESCRIBE_CONFIGS bar, -DESCRIBE baz"),
        (SHARED, BOB, HERE, "+WRITE foo, -READ bar, +DESCRIBE baz"),
        (SHARED, "User:malory", HERE, "+DESCRIBE foo, -WRITE bar, -READ baz"),
        (HOSTS, ALICE, HERE, "+READ foo, -READ bar, +DESCRIBE bar"),
        (HOSTS, ALICE, OTHER_HOST, "-READ foo, -READ bar, -DESCRIBE bar"),
        (HOSTS, ALICE, THIRD_HOST, "+READ foo, -READ bar, -DESCRIBE bar"),
        (HOSTS, BOB, HERE, "-READ foo, -READ bar, +DESCRIBE bar"),
        (HOSTS, BOB, OTHER_HOST, "-READ foo, -READ bar, -DESCRIBE bar"),
        (HOSTS, BOB, THIRD_HOST, "-READ foo, +READ bar, +DESCRIBE bar"),
        (MANY, BOB, HERE, "+READ green1, -READ alpha, -READ ala, +READ betamax44, +READ beta"),
        (MANY, BOB, HERE, "-WRITE GROUP:wheel, +WRITE GROUP:arbitrary"),
        (MANY, ALICE, HERE, "-READ green1, +READ green2, +READ alpha, -WRITE GROUP:arbitrary"),
        (PREFIXES, BOB, HERE, "+WRITE foobarr, -READ goobar, +READ fooa"),
        (PREFIXES, ALICE, HERE, "+DESCRIBE fooa, -WRITE bar, -READ foobar"),
    ],
)
def test_entries_outrank_each_other_as_at_kafka(entries, principal, host, questions):
    """`-WRITE foo` is denied, `+` allowed; kinds other than topics have theirs before the name."""
    rights = rights_of(*entries)
    for question in questions.split(", "):
        operation, name = question[1:].split()
        kind, _, name = name.rpartition(":")
        is_allowed = allows(
            *(rights, name, AclOperation[operation], principal, host),
            AclResource[kind or "TOPIC"],
        )
        assert is_allowed is question.startswith("+"), question


@pytest.mark.parametrize("operation", [*AclOperation])
@pytest.mark.parametrize(
    ("implied", "implying"),
    [
        (DESCRIBE, {ALL, DESCRIBE, READ, WRITE, DELETE, ALTER}),
        (DESCRIBE_CONFIGS, {ALL, DESCRIBE_CONFIGS, ALTER_CONFIGS}),
        (CREATE, {ALL, CREATE}),
        (READ, {ALL, READ}),
        (ALTER_CONFIGS, {ALL, ALTER_CONFIGS}),
        (AclOperation.CLUSTER_ACTION, {ALL, AclOperation.CLUSTER_ACTION}),
    ],
)
def test_a_right_includes_what_it_does_at_kafka_and_a_denial_only_itself(
    operation, implied, implying
):
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return  # of filters
    assert allows(rights_of(entry(operation=operation)), operation=implied) is (
        operation in implying
    )
    denied = rights_of(entry(operation=operation, permission=DENY), entry(operation=ALL))
    assert allows(denied, operation=implied) is (operation not in (ALL, implied))


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED])
@given(st.text("abc.-_", min_size=2, max_size=12), st.data())
def test_one_denial_that_fits_outranks_every_entry_that_allows(pattern, topic, data):
    prefixes = st.sampled_from([topic[:size] for size in range(1, len(topic) + 1)])
    denied = topic if pattern == LITERAL else data.draw(prefixes)
    allowed = data.draw(st.lists(st.builds(str.__add__, prefixes, st.text("abc", max_size=2))))
    others = [entry(name, WRITE, pattern=PREFIXED) for name in [topic, *allowed]]
    assert allows(rights_of(*others), topic, WRITE)
    denying = entry(denied, WRITE, DENY, pattern=pattern)
    assert not allows(rights_of(*others, denying), topic, WRITE)
    assert not allows(rights_of(denying, *others), topic, WRITE)


@pytest.mark.parametrize(
    ("entries", "principal", "operation", "words"),
    [
        (
            [entry("al", READ, DENY, pattern=PREFIXED, principal=BOB), entry("alpha")],
            *(BOB, READ),
            (
                "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=al, "
                "patternType=PREFIXED, principal=User:bob, host=*, operation=READ, "
                "permissionType=DENY])"
            ),
        ),
        (
            [entry("alpha", WRITE, principal=EVERYONE, host=HERE)],
            *(BOB, DESCRIBE),
            (
                "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=alpha, patternType="
                "LITERAL, principal=User:*, host=127.0.0.1, operation=WRITE, permissionType=ALLOW])"
            ),
        ),
        ([], BOB, READ, "DefaultDeny"),
        ([], "User:root", READ, "SuperUser"),
    ],
)
def test_a_decision_is_told_in_kafka_s_words(entries, principal, operation, words):
    rights = rights_of(*entries, super_users=["User:root"])
    assert str(rights.decide(principal, HERE, operation, TOPIC, "alpha")) == words


# Filters.

NAMES = st.sampled_from(["a", "ab", "abc", "*", "b"])
ENTRIES = st.builds(
    AclEntry,
    st.sampled_from([2, 3]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:a", "User:*"]),
    st.sampled_from(["*", HERE]),
    st.sampled_from([ALL, READ, WRITE]),
    st.sampled_from([ALLOW, DENY]),
)


@given(st.lists(ENTRIES, unique=True), NAMES)
def test_a_filter_that_matches_finds_what_applies_to_a_name(entries, name):
    rights = rights_of(*entries)
    asked = AclFilter(TOPIC, name, AclPattern.MATCH)
    found = {one for _, one in rights.found(asked)}
    assert found == {
        one
        for one in entries
        if one.resource_type == TOPIC
        and (name.startswith(one.name) if one.pattern == PREFIXED else one.name in ("*", name))
    }


@given(st.lists(ENTRIES, unique=True), ENTRIES)
def test_a_filter_without_any_finds_one_entry(entries, wanted):
    rights = rights_of(*entries)
    asked = AclFilter(
        *(wanted.resource_type, wanted.name, wanted.pattern),
        *(wanted.principal, wanted.host, wanted.operation, wanted.permission),
    )
    assert [one for _, one in rights.found(asked)] == [one for one in entries if one == wanted]


def test_a_filter_of_either_pattern_takes_the_name_itself():
    entries = [entry("a"), entry("a", pattern=PREFIXED), entry("ab"), entry("*")]
    found = rights_of(*entries).found(AclFilter(TOPIC, "a", AclPattern.ANY))
    assert [one for _, one in found] == entries[:2]
