import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.config.tables import topic_settings
from horolog.metadata import FollowedRow, SourceRow, TopicRow, state

ROW = TopicRow("a.b-c", UUID(int=7), 3)
NAMES = st.from_regex(r"[a-z._-]{1,12}", fullmatch=True).filter(lambda name: name != ".")
SETTINGS = st.dictionaries(
    st.sampled_from([*topic_settings(), *state.held_settings()]),
    st.sampled_from(["-1", "1", "100", "1048576", "2000000", "compact", "true"]),
)
ROWS = st.builds(
    TopicRow,
    NAMES,
    st.uuids(),
    st.just(3),
    adopted=st.booleans(),
    is_salvaged=st.booleans(),
    followed=st.booleans(),
)


@given(row=ROWS, overrides=SETTINGS)
def test_a_topic_is_read_as_it_was_split(row: TopicRow, overrides: dict[str, str]) -> None:
    own, shared = state.split(row, overrides)
    assert state.joined(row, own, shared) == (row, overrides)
    assert {*state.topic_names(row.name, shared)} == shared.keys()
    assert all(map(state.is_hidden, shared))


@given(rows=st.lists(st.tuples(ROWS, SETTINGS), max_size=4, unique_by=lambda each: each[0].name))
def test_topics_do_not_read_each_others_settings(
    rows: list[tuple[TopicRow, dict[str, str]]],
) -> None:
    shared: dict[str, str] = {}
    for row, overrides in rows:
        shared |= state.split(row, overrides).shared
    for row, overrides in rows:
        assert state.joined(row, state.split(row, overrides).own, shared) == (row, overrides)


def test_no_held_setting_ends_with_the_name_of_another() -> None:
    held = [*state.held_settings(), "retention.ms", "retention.bytes", "segment.bytes"]
    assert not [(one, other) for one in held for other in held if one.endswith(f".{other}")]


def test_a_topics_own_resource_has_only_what_kafka_takes() -> None:
    given_settings = {
        "horolog.retention.by": "append-time",
        "message.format.version": "2.8",
        "segment.bytes": "1000",
        "retention.ms": "5",
    }
    own, shared = state.split(ROW, given_settings)
    assert own == {"internal.segment.bytes": "1000", "retention.ms": "5"}
    assert shared["horolog.topic.a.b-c.horolog.retention.by"] == "append-time"
    assert shared["horolog.topic.a.b-c.message.format.version"] == "2.8"


def test_releases_that_refuse_a_name_are_not_given_it() -> None:
    own, shared = state.split(ROW, {"segment.bytes": "1000"}, level=21)
    assert own == {}
    assert state.joined(ROW, own, shared) == (ROW, {"segment.bytes": "1000"})


def test_kafka_deletes_nothing_of_an_adopted_topic() -> None:
    own, shared = state.split(ROW._replace(adopted=True), {"retention.ms": "5"})
    assert own == {"retention.ms": "-1", "retention.bytes": "-1"}
    row, overrides = state.joined(ROW, own, shared)
    assert (row.adopted, overrides) == (True, {"retention.ms": "5"})


def test_what_kafka_was_told_meanwhile_counts() -> None:
    own, shared = state.split(ROW._replace(adopted=True), {"segment.bytes": "1000"})
    own |= {"retention.ms": "7", "segment.bytes": "2000000"}
    _, overrides = state.joined(ROW, own, shared)
    assert overrides["retention.ms"] == "7"
    assert overrides["segment.bytes"] == "2000000"


def test_a_topic_that_kafka_made_again_inherits_nothing() -> None:
    _, shared = state.split(ROW._replace(adopted=True), {"horolog.roll.idle": "true"})
    again = ROW._replace(topic_id=UUID(int=8))
    assert state.joined(again, {}, shared) == (again, {})
    assert {*state.stale_names({"a.b-c": UUID(int=8)}, shared)} == shared.keys()
    assert {*state.stale_names({}, shared)} == shared.keys()
    assert [*state.stale_names({"a.b-c": UUID(int=7)}, shared)] == []


def test_a_setting_that_was_given_with_kafkas_tools_is_the_topics() -> None:
    shared = {"horolog.topic.a.b-c.horolog.roll.idle": "true", "horolog.topic.a.b-c.no.such": "1"}
    assert state.joined(ROW, {}, shared) == (ROW, {"horolog.roll.idle": "true"})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"id": 7}', '{"id": "x", "adopted": 1}'])
def test_a_state_that_cannot_be_read_keeps_the_records(text: str) -> None:
    row, _ = state.joined(ROW, {"retention.ms": "1"}, {"horolog.state.topic.a.b-c": text})
    assert (row.adopted, row.is_salvaged) == (True, True)


def test_a_deletion_comes_back() -> None:
    row = ROW._replace(deleting=True, adopted=True)
    key, note = state.deletion(row)
    assert [*state.deletions({key: note, "log.retention.ms": "1"})] == [(key, row)]


@pytest.mark.parametrize(
    "note",
    [
        "",
        '{"topic": "../x", "partitions": 1}',
        '{"topic": "t", "partitions": -1}',
        '{"topic": "t", "partitions": 4294967296}',
        '{"topic": ["t"], "partitions": 1}',
    ],
)
def test_a_deletion_that_cannot_be_read_deletes_nothing(note: str) -> None:
    key, _ = state.deletion(ROW)
    assert [*state.deletions({key: note})] == []
    _, sound = state.deletion(ROW)
    assert [*state.deletions({"horolog.deleting.no-id": sound})] == []


def test_the_source_and_its_topics_come_back() -> None:
    source = SourceRow("id", "kafka:9092", "a.*", "/etc/client.properties", True)
    rows = (
        FollowedRow("a-1", UUID(int=3), False, -1, '{"retention.ms": "5"}'),
        FollowedRow("a.2", None, True, 7, "{}"),
    )
    shared = {state.SOURCE: state.json_of(source), **dict(map(state.followed_entry, rows))}
    assert state.source_in(shared) == source
    assert tuple(state.followed_in(shared)) == rows


@pytest.mark.parametrize(
    "change",
    [
        {"servers": ""},
        {"cluster_id": "", "ended": False},
        {"topics": 7},
    ],
)
def test_a_source_that_cannot_be_is_none(change: dict[str, object]) -> None:
    good = {"cluster_id": "c", "servers": "s:1", "topics": ".*", "config": ""}
    assert state.source_in({state.SOURCE: json.dumps(good)}) is not None
    assert state.source_in({state.SOURCE: json.dumps({**good, **change})}) is None


@pytest.mark.parametrize("pattern", ["(", "(?!_).*", "x" * 2000, "\x1b[31m(", r"(a)\1", "\ud800"])
def test_a_stored_pattern_that_is_none_is_dropped_with_a_line(
    pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    row = SourceRow("c", "s:1", pattern, "")
    found = state.source_in({state.SOURCE: state.json_of(row)})
    assert found == row._replace(topics=""), "the cluster is still known"
    (line,) = caplog.messages
    assert "is dropped" in line
    assert line.isprintable()


def test_the_pattern_of_a_source_that_is_promoted_does_not_matter() -> None:
    row = SourceRow("c", "s:1", "(?!_).*", "", ended=True)
    assert state.source_in({state.SOURCE: state.json_of(row)}) == row


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("../t", '{"source_id": null, "led": false, "epoch": -1, "settings": {}}'),
        ("t", '{"source_id": "short", "led": false, "epoch": -1, "settings": {}}'),
        ("t", '{"source_id": null, "led": false, "epoch": 2147483648, "settings": {}}'),
        ("t", '{"source_id": null, "led": false, "epoch": -1, "settings": {"a": 1}}'),
    ],
)
def test_a_followed_topic_that_cannot_be_is_left_out(topic: str, text: str) -> None:
    assert [*state.followed_in({state.followed_name(topic): text})] == []


def test_a_promoted_topic_is_kept_with_how_transactions_end() -> None:
    row = FollowedRow("t", None, True, 5, "{}", {0: (7, 9)})
    assert [*state.followed_in(dict([state.followed_entry(row)]))] == [row]
    without = row._replace(committed={})
    name, text = state.followed_entry(without)
    assert "committed" not in text, "an earlier release has none"
    assert [*state.followed_in({name: text})] == [without]
