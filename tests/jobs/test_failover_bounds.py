"""No record is lost: plain Python over random histories of two clusters."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from horolog.client import CommittedOffset
from horolog.errors import CorruptFile
from horolog.jobs.failing_over import needed as needing
from horolog.jobs.failing_over.looking import Looked, PartitionEnds
from horolog.jobs.failing_over.marks import MarkSummary, between
from horolog.jobs.failing_over.needed import needed
from horolog.jobs.failing_over.planning import FailoverPlan, Start, start_times
from horolog.jobs.failing_over.recorded import BY_USER, MOST_BOUNDS, Bound, Recorded
from horolog.jobs.failing_over.recording import add, forget_changed
from horolog.jobs.parameters.failover import PlanStep
from horolog.jobs.questions.scan import Times
from horolog.record import NO_TIMESTAMP

TOPIC, GROUP, PARTITIONS = "t", "g", 2
BASES = (1_715_000_000_000, -5_000_000_000, 0)


def cautions(margin_ms: int, **given: Any) -> PlanStep:
    """A plan with a margin and other options."""
    return PlanStep(state="state", target="survivor:9092", margin_ms=margin_ms, **given)


@dataclass(frozen=True)
class Sent:
    """A record that was sent to both clusters, and when and where it arrives."""

    created_ms: int
    source_ms: int
    source_partition: int
    target_ms: int
    target_partition: int


def arrived(records: Sequence[Sent], cluster: str, until_ms: int) -> dict[int, list[Sent]]:
    """The logs of a cluster at a moment."""
    logs: dict[int, list[Sent]] = {number: [] for number in range(PARTITIONS)}
    for each in sorted(records, key=lambda it: getattr(it, f"{cluster}_ms")):
        if getattr(each, f"{cluster}_ms") <= until_ms:
            logs[getattr(each, f"{cluster}_partition")].append(each)
    return logs


def times(number: int, log: Sequence[Sent], cuts: Sequence[int]) -> Iterator[Times]:
    """A log as tables."""
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        if start < end:
            some = log[start:end]
            count = len(some)
            yield Times(
                TOPIC,
                number,
                np.arange(start, end, dtype=np.int64),
                np.array([each.created_ms for each in some], np.int64),
                np.array([each.source_ms for each in some], np.int64),
                np.ones(count, np.bool_),
                np.zeros(count, np.bool_),
                None,
            )


def recording(
    logs: dict[int, list[Sent]],
    committed: dict[int, int],
    at_ms: int,
    cuts: Any,
    recorded: Recorded | None = None,
    topic_id: str = "id",
    epoch: int = 0,
    starts: dict[int, int] | None = None,
) -> Recorded:
    """Record logs; with what was `recorded` of them before. Logs begin at `starts`."""
    starts = starts or {}
    looked = Looked(
        "source",
        at_ms,
        {GROUP: {(TOPIC, number): CommittedOffset(at) for number, at in committed.items()}},
        {TOPIC: topic_id},
        {
            (TOPIC, number): PartitionEnds(starts.get(number, 0), len(log), epoch)
            for number, log in logs.items()
        },
    )
    recorded = recorded or Recorded("source", "east:9092")
    forget_changed(recorded, looked)
    to_read = needed(recorded, looked)
    marks = {key: each.marks for key, each in to_read.items()}
    summary, rows = MarkSummary(marks), []
    for number, log in logs.items():
        for first, end in to_read[TOPIC, number].ranges:
            first = max(first, starts.get(number, 0))
            at = sorted({min(cut, len(log)) for cut in [*cuts, first, end]})
            # Each stretch in a task of its own, which knows nothing of the others.
            for table in times(number, log, at):
                if first <= table.offsets[0] < end:
                    rows += [
                        row for batch in summary(0, iter([table])) for row in batch.to_pylist()
                    ]
    bounds, _ = add(recorded, looked, to_read, between(rows, marks))
    recorded.add_bound(TOPIC, bounds[TOPIC])
    return Recorded.from_json(json.loads(json.dumps(recorded.to_json())))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Sent], int, int]:
    base = draw(st.sampled_from(BASES))
    most = draw(st.sampled_from([0, 3, 40]))
    latency = st.integers(-2, most)
    records = []
    for _ in range(draw(st.integers(0, 25))):
        created = base + draw(st.integers(0, 60))
        records.append(
            Sent(
                created,
                created + draw(latency),
                draw(st.integers(0, PARTITIONS - 1)),
                created + draw(latency),
                draw(st.integers(0, PARTITIONS - 1)),
            )
        )
    return records, base, most


@examples(12)
@given(histories(), st.data())
def test_no_unread_record_lies_before_the_start_in_the_survivor(
    history: tuple[list[Sent], int, int], data: st.DataObject
) -> None:
    records, base, most = history
    at_ms = base + data.draw(st.integers(-5, 110), "when it is recorded")
    failed_ms = at_ms + data.draw(st.integers(0, 100), "when the source fails, later")
    logs = arrived(records, "source", at_ms)
    committed = {
        number: data.draw(st.integers(0, len(log)), f"committed in {number}")
        for number, log in logs.items()
    }
    cuts = data.draw(st.lists(st.integers(1, 20), max_size=3), "where tasks begin")
    recorded = recording(logs, committed, at_ms, cuts)
    # An earlier recording has seen the longest latency.
    recorded.add_bound(TOPIC, Bound(at_ms - 1, 1, 0, 0, most, "append time"))
    start = start_times(recorded, GROUP, TOPIC, range(PARTITIONS), cautions(0))
    read = {id(each) for number, log in logs.items() for each in log[: committed[number]]}
    known = {id(each) for log in logs.values() for each in log}
    for number, log in arrived(records, "target", failed_ms).items():
        from_ms = start.from_ms[number]
        offset = 0 if from_ms is None else next(
            (at for at, each in enumerate(log)
             if each.created_ms != NO_TIMESTAMP and each.created_ms >= from_ms),
            len(log),
        )  # fmt: skip
        for each in log[:offset]:
            is_found_by_time = each.created_ms != NO_TIMESTAMP or id(each) in known
            assert id(each) in read or not is_found_by_time, (start, log, offset)


@examples(10)
@given(histories(), st.data())
def test_with_the_same_partitions_a_start_is_no_earlier_and_loses_nothing(
    history: tuple[list[Sent], int, int], data: st.DataObject
) -> None:
    records = [
        Sent(it.created_ms, it.source_ms, it.source_partition, it.target_ms, it.source_partition)
        for it in history[0]
    ]
    assume(all(each.created_ms != NO_TIMESTAMP for each in records))
    at_ms = history[1] + data.draw(st.integers(0, 110))
    logs = arrived(records, "source", at_ms)
    committed = {number: data.draw(st.integers(0, len(log))) for number, log in logs.items()}
    recorded = recording(logs, committed, at_ms, [])
    recorded.add_bound(TOPIC, Bound(at_ms - 1, 1, 0, 0, history[2], "append time"))
    both = [
        start_times(
            recorded, GROUP, TOPIC, range(PARTITIONS), cautions(0, same_partitions=same)
        ).from_ms
        for same in (False, True)
    ]
    read = {id(each) for number, log in logs.items() for each in log[: committed[number]]}
    for number in range(PARTITIONS):
        wide, narrow = both[0][number], both[1][number]
        assert wide is not None
        assert narrow is not None
        assert wide <= narrow
        for each in records:
            if each.target_partition == number and id(each) not in read:
                assert each.created_ms >= narrow


def test_lateness_counts_as_latency_also_across_tasks_and_marks() -> None:
    log = [Sent(100 + ct, 100 + ct, 0, 0, 0) for ct in (0, 50, 10, 60, 5)]
    for cuts in ([], [1, 2, 3, 4]):
        recorded = recording({0: log, 1: []}, {0: 2, 1: 0}, 200, cuts)
        assert recorded.bounds[TOPIC][0].lateness_ms == 55


def test_what_cannot_be_proven_is_said() -> None:
    log = [Sent(100, 130, 0, 0, 0), Sent(NO_TIMESTAMP, 140, 0, 0, 0)]
    recorded = recording({0: log, 1: []}, {0: 2, 1: 0}, 200, [])
    plain = start_times(recorded, GROUP, TOPIC, [0, 1], cautions(5))
    assert plain.bound_ms == 35
    assert plain.from_ms == {0: 165, 1: 165}
    assert [note for note in plain.notes if "1 records had no time" in note]
    assert start_times(recorded, GROUP, TOPIC, [0], cautions(5, ignore_odd_times=True)).notes == ()
    bold = start_times(recorded, GROUP, TOPIC, [0], cautions(0, bound_ms=7, ignore_odd_times=True))
    assert bold.from_ms == {0: 193}
    assert bold.notes == ("records have taken up to 30 ms",)
    unread = recording({0: log, 1: []}, {0: 1, 1: 0}, 200, [])
    assert start_times(unread, GROUP, TOPIC, [0, 1], cautions(0)).from_ms == {0: None, 1: None}
    unmeasured = Recorded("source", "east:9092", groups=recorded.groups)
    unmeasured.add_bound(TOPIC, Bound(200, 2, 0, 11, None, None))
    (note,) = start_times(unmeasured, GROUP, TOPIC, [0], cautions(0)).notes
    assert "never measured" in note


def test_the_largest_bound_outlives_many_recordings() -> None:
    recorded = Recorded("source", "east:9092")
    recorded.add_bound(TOPIC, Bound(0, 1, 0, 9_999, None, None))
    for number in range(MOST_BOUNDS + 10):
        recorded.add_bound(TOPIC, Bound(number, 1, 0, 1, 2, "append time"))
    assert len(recorded.bounds[TOPIC]) == MOST_BOUNDS
    assert recorded.bound(TOPIC).ms == 9_999


@pytest.mark.parametrize("most_stretches", [1, 3, needing.MOST_STRETCHES])
@examples(4)
@given(histories(), st.data())
def test_recordings_one_after_the_other_know_what_one_of_everything_knows(
    most_stretches: int, history: tuple[list[Sent], int, int], data: st.DataObject
) -> None:
    with (
        patch.object(needing, "MOST_STRETCHES", most_stretches),
        patch.object(needing, "LEAST_RECORDS", data.draw(st.integers(1, 10))),
        patch.object(needing, "MOST_RANGES", data.draw(st.integers(1, 3))),
    ):
        check_recordings_one_after_the_other(history, data)


def check_recordings_one_after_the_other(
    history: tuple[list[Sent], int, int], data: st.DataObject
) -> None:
    records, base, _ = history
    moments = sorted(data.draw(st.lists(st.integers(-5, 110), min_size=1, max_size=4)))
    recorded, committed = None, dict.fromkeys(range(PARTITIONS), 0)
    for moment in moments:
        logs = arrived(records, "source", base + moment)
        for number, log in logs.items():
            moved = data.draw(st.integers(0, len(log) - committed[number]), "how far a group moves")
            committed[number] += data.draw(st.sampled_from([0, moved]), "or not")
        cuts = data.draw(st.lists(st.integers(1, 20), max_size=2), "where tasks begin")
        recorded = recording(logs, committed, base + moment, cuts, recorded)
    assert recorded is not None
    whole = recording(logs, committed, base + moments[-1], [])
    assert recorded.groups == whole.groups
    assert recorded.read == whole.read
    assert recorded.bounds[TOPIC][-1] == whole.bounds[TOPIC][0]


def test_a_group_that_moves_on_far_behind_has_little_of_its_backlog_read_again() -> None:
    log = [Sent(100 + number, 110 + number, 0, 0, 0) for number in range(100_000)]
    ends = {(TOPIC, 0): PartitionEnds(0, len(log), 0)}

    def looked(*committed: int) -> Looked:
        commits = {f"g{n}": {(TOPIC, 0): CommittedOffset(at)} for n, at in enumerate(committed)}
        return Looked("source", 200, commits, {TOPIC: "id"}, ends)

    recorded = Recorded("source", "east:9092")
    first = needed(recorded, looked(5, 80_000))
    assert first[TOPIC, 0].ranges == [(0, 100_000)]
    marks = {(TOPIC, 0): first[TOPIC, 0].marks}
    rows = [row for each in MarkSummary(marks)(0, times(0, log, [])) for row in each.to_pylist()]
    add(recorded, looked(5, 80_000), first, between(rows, marks))
    again = needed(recorded, looked(7, 80_001))[TOPIC, 0]
    assert again.ranges == [(7, 12_500), (80_001, 87_500)]
    assert needed(recorded, looked(5, 80_000))[TOPIC, 0].ranges == []


def test_recordings_without_stretches_are_read_on() -> None:
    log = [Sent(100 + number, 110 + number, 0, 0, 0) for number in range(6)]
    recorded = recording({0: log[:4], 1: []}, {0: 1, 1: 0}, 200, [])
    document = json.loads(json.dumps(recorded.to_json()))
    for each in document["read"][TOPIC]["partitions"].values():
        del each["stretches"]
    before = Recorded.from_json({**document, "version": 2})
    again = recording({0: log, 1: []}, {0: 2, 1: 0}, 300, [], before)
    assert again.groups == recording({0: log, 1: []}, {0: 2, 1: 0}, 300, []).groups


@pytest.mark.parametrize(
    "change",
    [{"topic_id": "another"}, {"epoch": 1}, {"topic_id": None}],
    ids=str,
)
def test_another_log_is_read_from_its_start(change: dict[str, Any]) -> None:
    log = [Sent(100 + number, 110 + number, 0, 0, 0) for number in range(6)]
    before = recording({0: log, 1: []}, {0: 2, 1: 0}, 200, [])
    other = [Sent(50, 95, 0, 0, 0), *log, *log]
    again = recording({0: other, 1: []}, {0: 2, 1: 0}, 300, [], before, **change)
    (progress, _) = again.groups[GROUP][TOPIC].partitions.values()
    assert (progress.unread, progress.unread_min_ms) == (11, 100)
    assert (again.read[TOPIC].partitions[0].records, again.bound(TOPIC).ms) == (13, 45)


def test_a_log_that_ends_earlier_than_it_did_is_read_from_its_start() -> None:
    log = [Sent(100 + number, 110 + number, 0, 0, 0) for number in range(6)]
    before = recording({0: log, 1: []}, {0: 2, 1: 0}, 200, [])
    again = recording({0: log[:3], 1: []}, {0: 2, 1: 0}, 300, [], before)
    assert again.groups[GROUP][TOPIC].unread == 1
    assert again.read[TOPIC].partitions[0].records == 3


def test_a_group_that_stands_still_keeps_what_retention_deletes_unread() -> None:
    log = [Sent(100 + number, 110 + number, 0, 0, 0) for number in range(6)]
    before = recording({0: log[:4], 1: []}, {0: 1, 1: 0}, 200, [])
    again = recording({0: log, 1: []}, {0: 1, 1: 0}, 300, [], before, starts={0: 3})
    place = again.groups[GROUP][TOPIC].partitions[0]
    assert (place.offset, place.unread, place.unread_min_ms) == (3, 5, 101)


@pytest.mark.parametrize(
    "document", [{}, [], {"version": 1}, {"version": [3]}, {"version": 3, "groups": 5}]
)
def test_damaged_documents_are_refused(document: Any) -> None:
    with pytest.raises(CorruptFile):
        Recorded.from_json(document)
    with pytest.raises(CorruptFile):
        FailoverPlan.from_json(document)


def test_a_plan_is_read_as_it_was_written() -> None:
    start = Start("g", TOPIC, 5, 6, {0: None, 11: -7}, {0: 1, 11: 2}, 3, 4, BY_USER, ("a note",))
    plan = FailoverPlan("id", None, "h:1", (start, Start("h", TOPIC, 0, 0, {})))
    assert FailoverPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    "change", [{"offsets": {"0": -1.5}}, {"offsets": {"x": 1}}, {"from_ms": None}, {"notes": "a"}]
)
def test_a_damaged_plan_is_refused_where_it_is_read(change: dict[str, Any]) -> None:
    plan = FailoverPlan("id", None, "h:1", (Start("g", TOPIC, 5, 6, {0: None}),))
    document = json.loads(json.dumps(plan.to_json()))
    document["starts"][0] |= change
    with pytest.raises(CorruptFile, match=r"plan\.json is damaged"):
        FailoverPlan.from_json(document)
