"""Quotas: which one applies, Kafka's sums, and what may be set (facts 7 of Kafka's quotas)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, RequestRefused
from horolog.quotas import (
    MOST_MS,
    Entity,
    QuotaKey,
    Quotas,
    QuotaWindow,
    WindowedSum,
    check_entity,
    check_quota,
)

SPAN = QuotaWindow(11, 1000)
PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
NAMES = [None, "alice", "bob"]


def use(sizes: dict[float, float], limit: float, now_ms: float) -> int:
    window = WindowedSum()
    for at_ms, size in sizes.items():
        window.add(size, at_ms, SPAN)
    return window.wait_ms(limit, now_ms, SPAN)


# --- 7.1 ---


LEVELS = [
    {"user": "alice", "client-id": "app"},
    {"user": "alice", "client-id": None},
    {"user": "alice"},
    {"user": None, "client-id": "app"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
]


def test_the_first_level_that_is_set_applies() -> None:
    quotas = Quotas(SPAN, SPAN)
    for number, level in enumerate(LEVELS, 1):
        quotas.put(frozenset(level.items()), PRODUCED, number)
    for number, level in enumerate(LEVELS, 1):
        limit = quotas.limit(PRODUCED, "alice", "app")
        assert limit is not None
        assert limit.a_second == number
        quotas.put(frozenset(level.items()), PRODUCED, None)
    assert quotas.limit(PRODUCED, "alice", "app") is None
    assert not quotas.is_set


@pytest.mark.parametrize(
    ("level", "users_share", "clients_share"),
    [
        ({"user": None, "client-id": None}, False, False),
        ({"user": None}, False, True),
        ({"client-id": None}, True, False),
    ],
)
def test_a_quota_is_shared_by_what_its_level_does_not_name(
    level: dict[str, str | None], users_share: bool, clients_share: bool
) -> None:
    quotas = Quotas(SPAN, SPAN)
    quotas.put(frozenset(level.items()), PRODUCED, 100)

    def waits(user: str, client_id: str) -> bool:
        limit = quotas.limit(PRODUCED, user, client_id)
        assert limit is not None
        return quotas.use(limit, 1, 0.0) > 0

    first = quotas.limit(PRODUCED, "alice", "app")
    assert first is not None
    assert quotas.use(first, 10_000, 0.0) > 0
    assert waits("bob", "app") == users_share
    assert waits("alice", "other") == clients_share


# --- 7.2 and 7.3 ---


@pytest.mark.parametrize(("size", "limit"), [(20_000, 1_000), (11_001, 1_000), (5e9, 7.0)])
def test_one_request_of_a_fresh_client_waits_for_its_bytes_less_the_window(
    size: float, limit: float
) -> None:
    assert use({0: size}, limit, 0) == min(round(1000 * (size / limit - 10)), MOST_MS)


@pytest.mark.parametrize(
    ("rate", "limit", "samples", "wait"),
    [
        (16.5, 16.5, 10, 0),
        (16.5, 16.5, 11, 0),
        (16.5, 20.4, 10, 0),
        (16.5, 20.4, 11, 0),
        (100.0, 50.0, 3, 2_000),
        (100.0, 50.0, 2, 1_000),
        (55.0, 50.0, 2, 100),
        (100.0, 50.0, 10, 9_000),
        (100.0, 50.0, 1, 1_000),
    ],
)
def test_the_wait_is_how_far_the_rate_is_over_its_limit_times_the_window(
    rate: float, limit: float, samples: int, wait: int
) -> None:
    """Only a whole window counts, so that a rate of so many samples is one less of them."""
    window, span = WindowedSum(), QuotaWindow(samples, 1000)
    window.add(rate * max(samples - 1, 1), 0, span)
    assert window.wait_ms(limit, 0, span) == wait


@pytest.mark.parametrize(
    ("key", "used", "wait"),
    [
        (QuotaKey.REQUEST_PERCENTAGE, 3.64, 0),
        (QuotaKey.REQUEST_PERCENTAGE, 5.5, 50),
        (QuotaKey.REQUEST_PERCENTAGE, 90.0, 500),
        (PRODUCED, 5.5, 50),
        (PRODUCED, 90.0, 8_500),
    ],
)
def test_only_waits_for_time_are_bounded_by_a_sample(key: QuotaKey, used: float, wait: int) -> None:
    span = QuotaWindow(2, 500)
    quotas = Quotas(span, span)
    quotas.put(frozenset({("user", "alice")}), key, 10)
    limit = quotas.limit(key, "alice", "")
    assert limit is not None
    assert quotas.use(limit, used, 0.0) == wait


def test_a_request_within_the_window_does_not_wait() -> None:
    assert use({0: 10_000}, 1_000, 0) == 0


def test_the_window_grows_with_the_time_since_its_oldest_sample() -> None:
    assert use({0: 12_000}, 1_000, 0) == 2_000
    assert use({0: 12_000}, 1_000, 10_500) == 1_500
    assert use({0: 12_000}, 1_000, 11_000) == 0


def test_a_sample_is_dropped_once_its_last_event_is_a_window_old() -> None:
    assert use({0: 1e6, 900: 1}, 1_000, 11_899) > 0
    assert use({0: 1e6, 900: 1}, 1_000, 11_900) == 0


def test_samples_are_summed() -> None:
    assert use({0: 6_000, 5_000: 6_000}, 1_000, 5_000) == 2_000


@given(
    st.lists(st.tuples(st.floats(0, 30_000), st.integers(1, 1 << 40)), min_size=1, max_size=20),
    st.floats(0.1, 1e9),
)
def test_after_its_wait_a_silent_client_is_within_its_quota(
    uses: list[tuple[float, int]], limit: float
) -> None:
    window = WindowedSum()
    for at_ms, size in sorted(uses):
        window.add(size, at_ms, SPAN)
    now_ms = max(at_ms for at_ms, _ in uses)
    wait = window.wait_ms(limit, now_ms, SPAN)
    assert 0 <= wait <= MOST_MS
    assert window.wait_ms(limit, now_ms + max(wait, 11_000) + 1, SPAN) == 0


# --- 7.5 ---


def test_what_is_given_back_does_not_count() -> None:
    quotas = Quotas(SPAN, SPAN)
    quotas.put(frozenset({("user", "alice")}), PRODUCED, 100)
    limit = quotas.limit(PRODUCED, "alice", "")
    assert limit is not None
    assert quotas.use(limit, 1e6, 0.0) > 0
    quotas.give_back(limit, 1e6, 0.0)
    assert quotas.use(limit, 1, 1.0) == 0
    assert quotas.most_at_once(limit) == 1_000


# --- 7.9 ---


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("moon", "x")],
        [("", "x")],
        [("user", "")],
        [("user", "a"), ("user", "b")],
        [("ip", "1.2.3.4"), ("user", "a")],
        [("client-id", None), ("ip", None)],
        [("ip", "no.such.host")],
    ],
)
def test_other_entities_are_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(RequestRefused) as refused:
        check_entity(parts)
    assert refused.value.code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("user", "producer_byte_rate", 0.0),
        ("user", "producer_byte_rate", -1.0),
        ("user", "producer_byte_rate", math.nan),
        ("user", "consumer_byte_rate", math.inf),
        ("user", "consumer_byte_rate", 10.5),
        ("user", "consumer_byte_rate", 1e19),
        ("user", "connection_creation_rate", 5.0),
        ("ip", "producer_byte_rate", 5.0),
        ("user", "SCRAM-SHA-256", 5.0),
        ("user", "", None),
    ],
)
def test_other_quotas_are_refused(kind: str, key: str, value: float | None) -> None:
    with pytest.raises(RequestRefused) as refused:
        check_quota(frozenset({(kind, None)}), key, value)
    assert refused.value.code is ErrorCode.invalid_request


# --- bounds ---


def test_many_clients_take_no_more_memory_than_some() -> None:
    quotas = Quotas(SPAN, SPAN)
    quotas.put(frozenset({("client-id", None)}), PRODUCED, 100)
    for number in range(10_000):
        limit = quotas.limit(PRODUCED, "", f"{number}" * 10_000)
        assert limit is not None
        assert len(limit.usage[2]) <= 128
        quotas.use(limit, 1, 0.0)
    assert quotas.clients == 4_096
    for number in range(3_000):
        limit = quotas.limit(PRODUCED, "", f"later {number}")
        assert limit is not None
        quotas.use(limit, 1, 1e6)
    assert quotas.clients == 3_000


WHATEVER = [0.0, -1.0, -1e308, 5e-324, 1e-308, 1.0, 1e308, math.inf, -math.inf, math.nan]
PARTS = ["alice", "", None, "127.0.0.1", "\ud800", "x" * 40_000]


@given(
    st.frozensets(
        st.tuples(st.sampled_from(["user", "client-id", "ip", "", "x"]), st.sampled_from(PARTS)),
        max_size=4,
    ),
    st.sampled_from([*QuotaKey, "x"]),
    st.sampled_from(WHATEVER) | st.floats(),
)
def test_no_quota_of_a_log_breaks_a_request(entity: Entity, key: str, value: float) -> None:
    quotas = Quotas(SPAN, SPAN)
    quotas.put(entity, key, value)
    for now_ms in (0.0, 1.0, 5e5):
        assert 0 <= quotas.connect("127.0.0.1", now_ms) <= SPAN.sample_ms
        for kind in QuotaKey:
            limit = quotas.limit(kind, "alice", "")
            if limit is not None:
                assert 0 < limit.a_second < math.inf
                assert 0 <= quotas.most_at_once(limit) <= MOST_MS
                assert 0 <= quotas.use(limit, 1e9, now_ms) <= MOST_MS
                assert 0 <= quotas.mutate(limit, 10_000, now_ms, is_strict=False) <= MOST_MS
    assert quotas.by_entity().keys() == {entity}
    quotas.put(entity, key, None)
    assert (quotas.is_set, quotas.by_entity()) == (False, {})


def test_a_quota_of_two_users_is_obeyed_for_neither() -> None:
    quotas = Quotas(SPAN, SPAN)
    both = frozenset({("user", "alice"), ("user", "bob")})
    quotas.put(both, PRODUCED, 5)
    assert quotas.limit(PRODUCED, "alice", "") is quotas.limit(PRODUCED, "bob", "") is None
    for name in ("alice", "bob"):
        quotas.put(frozenset({("user", name)}), PRODUCED, 7)
    quotas.put(both, PRODUCED, None)
    assert quotas.limit(PRODUCED, "alice", "")
    assert quotas.limit(PRODUCED, "bob", "")


def test_a_quota_for_an_address_limits_nothing_but_its_connections() -> None:
    """Apache Kafka writes no other for one, and a log may have it."""
    quotas = Quotas(SPAN, SPAN)
    quotas.put(frozenset({("ip", "127.0.0.1")}), PRODUCED, 1e-9)
    quotas.put(frozenset({("user", "alice")}), QuotaKey.CONNECTION_CREATION_RATE, 1e-9)
    quotas.put(frozenset(), PRODUCED, 1e-9)
    assert [quotas.connect("127.0.0.1", 0) for _ in range(99)] == [0] * 99
    assert not quotas.is_set


# --- 7.7 ---


def mutate(quotas: Quotas, count: int, now_ms: float, *, is_strict: bool) -> int:
    limit = quotas.limit(QuotaKey.CONTROLLER_MUTATION_RATE, "alice", "app")
    assert limit is not None
    return quotas.mutate(limit, count, now_ms, is_strict=is_strict)


@pytest.fixture
def mutating() -> Quotas:
    quotas = Quotas(SPAN, QuotaWindow(5, 2000))
    quotas.put(frozenset({("user", "alice")}), QuotaKey.CONTROLLER_MUTATION_RATE, 0.5)
    return quotas


def test_partitions_are_tokens_of_which_a_window_holds_so_many(mutating: Quotas) -> None:
    assert mutate(mutating, 5, 0, is_strict=True) == 0
    assert mutate(mutating, 3, 0, is_strict=True) == 0  # it takes them below zero, and passes
    assert mutate(mutating, 1, 0, is_strict=True) == 6_000
    assert mutate(mutating, 1, 4_000, is_strict=True) == 2_000
    assert mutate(mutating, 1, 6_000, is_strict=True) == 0
    assert mutate(mutating, 1, 1e9, is_strict=True) == 0
    assert mutate(mutating, 4, 1e9, is_strict=True) == 0
    assert mutate(mutating, 1, 1e9, is_strict=True) == 0  # no more than a window's came back
    assert mutate(mutating, 1, 1e9, is_strict=True) == 2_000


def test_older_requests_pass_and_wait(mutating: Quotas) -> None:
    assert mutate(mutating, 8, 0, is_strict=False) == 6_000
    assert mutate(mutating, 1, 0, is_strict=False) == 8_000


# --- 7.8 ---


def test_connections_of_an_address_over_its_rate_wait_a_sample_at_most_and_do_not_count() -> None:
    quotas = Quotas(SPAN, SPAN)
    quotas.put(frozenset({("ip", "127.0.0.1")}), QuotaKey.CONNECTION_CREATION_RATE, 1)
    quotas.put(frozenset({("ip", None)}), QuotaKey.CONNECTION_CREATION_RATE, 0.1)
    assert not quotas.is_set  # no request is looked at for it
    assert [quotas.connect("127.0.0.1", 0) for _ in range(10)] == [0] * 10
    assert [quotas.connect("127.0.0.1", 0) for _ in range(10)] == [1_000] * 10
    assert quotas.connect("127.0.0.1", 10_900) == 100
    assert quotas.connect("127.0.0.1", 11_000) == 0
    assert quotas.connect("::1", 0) == 0
    assert quotas.connect("0:0:0:0:0:0:0:1", 0) == 1_000
    quotas.put(frozenset({("ip", "127.0.0.1")}), QuotaKey.CONNECTION_CREATION_RATE, None)
    quotas.put(frozenset({("ip", None)}), QuotaKey.CONNECTION_CREATION_RATE, None)
    assert quotas.connect("127.0.0.1", 0) == quotas.connect("::1", 0) == 0


def test_an_address_written_in_two_ways_keeps_the_quota_that_is_left() -> None:
    quotas = Quotas(SPAN, SPAN)
    short, long = (frozenset({("ip", name)}) for name in ("::1", "0:0:0:0:0:0:0:1"))
    quotas.put(short, QuotaKey.CONNECTION_CREATION_RATE, 1)
    quotas.put(long, QuotaKey.CONNECTION_CREATION_RATE, 5)
    quotas.put(long, QuotaKey.CONNECTION_CREATION_RATE, None)
    assert [quotas.connect("::1", 0) for _ in range(11)] == [0] * 10 + [1_000]
