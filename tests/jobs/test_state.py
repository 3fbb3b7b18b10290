import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import CorruptFile, Misconfigured
from horolog.jobs.parameters.shared import Keeps
from horolog.jobs.state import JobState, look_at_state, state_of

ARGUMENTS = {"source": "127.0.0.1:9092", "topics": ["clicks"]}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    return tmp_path / "state"


def opened(path: Path, **changed: object) -> JobState:
    return JobState(path, "mirror", {**ARGUMENTS, **changed})


def test_done_units_are_known_to_the_next_run_in_their_order(path: Path) -> None:
    with opened(path) as state:
        state.record([("b", {"records": 2}), ("a", {"records": 1})])
        state.record([])
        state.record([("c", {"name": "naïve"})])
    with opened(path) as state:
        assert list(state.done.items()) == [
            ("b", {"records": 2}),
            ("a", {"records": 1}),
            ("c", {"name": "naïve"}),
        ]


def test_a_second_run_on_one_state_is_refused_until_the_first_ends(path: Path) -> None:
    with opened(path), pytest.raises(Misconfigured, match="another run of the job is under way"):
        opened(path)
    opened(path).close()


def test_another_job_or_other_arguments_are_refused_by_name(path: Path) -> None:
    with opened(path) as state:
        state.write("plan", {})
    with pytest.raises(Misconfigured, match="state of the job mirror"):
        JobState(path, "archive", ARGUMENTS)
    with pytest.raises(Misconfigured, match=r"another topics: \['clicks'\] then, \['views'\] now"):
        opened(path, topics=["views"])
    with pytest.raises(Misconfigured, match="another target: None then"):
        opened(path, target="x:1")


def test_an_argument_in_a_group_is_refused_by_its_own_name(path: Path) -> None:
    with opened(path, rules={"time": "at", "unit": None}) as state:
        state.write("plan", {})
    with pytest.raises(Misconfigured, match="another unit: None then, 'ms' now"):
        opened(path, rules={"time": "at", "unit": "ms"})


def test_a_run_that_began_nothing_leaves_its_directory_to_other_arguments(path: Path) -> None:
    opened(path).close()
    assert look_at_state(path, "archive", {}) is None
    with opened(path, topics=["views"]) as state:
        state.record([("a", {})])
    with opened(path, topics=["views"]) as state:
        assert state.done == {"a": {}}
    with pytest.raises(Misconfigured, match="another topics"):
        opened(path)


def test_a_directory_with_other_files_is_refused_and_left_alone(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("mine")
    with pytest.raises(Misconfigured, match=r"no state directory: it holds thesis\.txt"):
        opened(path)
    assert (path / "thesis.txt").read_text() == "mine"


def test_a_kill_before_the_first_document_was_renamed_leaves_a_usable_directory(path: Path) -> None:
    path.mkdir()
    (path / "job.json.tmp").write_text('{"versi')
    temporary = [each.name for each in path.iterdir()]
    assert temporary == ["job.json.tmp"]
    opened(path).close()


@given(cut=st.integers(1, 200))
def test_a_torn_last_line_is_not_done_and_the_next_line_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("torn")
    with opened(path) as state:
        state.record([("first", {"at": 1}), ("second", {"text": "x" * 150})])
    journal = path / "done.jsonl"
    whole = journal.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    journal.write_bytes(whole[: -min(cut, last)])
    with opened(path) as state:
        assert state.done == {"first": {"at": 1}}
        state.record([("third", {})])
    with opened(path) as state:
        assert list(state.done) == ["first", "third"]


def test_damage_before_the_last_line_is_refused_by_its_position(path: Path) -> None:
    with opened(path) as state:
        state.record([("first", {"at": 1}), ("second", {})])
    journal = path / "done.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"at": 1', b'"at": 2'))
    with pytest.raises(CorruptFile, match="byte 0: the line is damaged"):
        opened(path)


def test_documents_are_replaced_as_a_whole(path: Path) -> None:
    with opened(path) as state:
        assert state.read("mapping") is None
        state.write("mapping", {"clicks-0": [[0, 5]]})
        state.write("mapping", {"clicks-0": [[0, 7]]})
    with opened(path) as state:
        assert state.read("mapping") == {"clicks-0": [[0, 7]]}
        (path / "mapping.json").write_text("{")
        with pytest.raises(CorruptFile, match=r"mapping\.json is damaged"):
            state.read("mapping")


def test_a_dry_run_looks_whether_a_run_could_take_the_state(path: Path) -> None:
    assert look_at_state(path, "mirror", ARGUMENTS) is None
    assert not path.exists()
    with opened(path) as state:
        state.write("plan", {})
        with pytest.raises(Misconfigured, match="another run of the job is under way"):
            look_at_state(path, "mirror", ARGUMENTS)
    found = look_at_state(path, "mirror", ARGUMENTS)
    assert found is not None
    assert found.read("plan") == {}
    opened(path).close()  # the look holds no lock
    file = path / "plan.json"
    with pytest.raises(Misconfigured, match=r"plan\.json is no directory"):
        look_at_state(file / "below", "mirror", ARGUMENTS)


def test_a_dry_run_refuses_a_state_that_this_user_cannot_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(Misconfigured, match="cannot be written by this user"):
        look_at_state(path, "mirror", ARGUMENTS)


def test_a_dry_run_reads_the_state_of_a_run_and_writes_nothing(path: Path) -> None:
    with state_of(Keeps(), "mirror") as state:
        assert state is None
    with state_of(Keeps(state=path, dry_run=True), "mirror") as state:
        assert state is None
    with state_of(Keeps(state=path), "mirror") as state:
        assert state is not None
        state.write("plan", {"round": 1})
        state.record([("a", {})])
    with state_of(Keeps(state=path, dry_run=True), "mirror") as state:
        assert state is not None
        assert (state.read("plan"), state.done) == ({"round": 1}, {"a": {}})
        state.write("plan", {"round": 2})
        state.record([("b", {})])
    with state_of(Keeps(state=path), "mirror") as state:
        assert state is not None
        assert (state.read("plan"), state.done) == ({"round": 1}, {"a": {}})


@pytest.mark.parametrize("job", ['{"version": 2}', "[]", '"text"'])
def test_a_state_of_another_version_is_refused(path: Path, job: str) -> None:
    opened(path).close()
    (path / "job.json").write_text(job)
    with pytest.raises(Misconfigured, match="not of version 1"):
        opened(path)


def test_what_was_recorded_before_a_kill_is_done(path: Path) -> None:
    child = """
import sys
from horolog.jobs.state import JobState, look_at_state
state = JobState(sys.argv[1], "mirror", {})
number = 0
while True:
    state.record([(f"unit-{number}", {"number": number})])
    print(number, flush=True)
    number += 1
"""
    command = [sys.executable, "-c", child, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if int(line) == 40:
                break
        running.send_signal(signal.SIGKILL)
        reported = max([40, *map(int, running.stdout.read().split())])
    with JobState(path, "mirror", {}) as state:
        numbers = [facts["number"] for facts in state.done.values()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > reported
    assert json.loads((path / "job.json").read_text())["job"] == "mirror"
