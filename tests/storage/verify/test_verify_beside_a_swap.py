"""Tools over a directory whose segments are being replaced: as before it, or as after it."""

from __future__ import annotations

from pathlib import Path

from storelogs import NOW
from swapped import EVENTS, end_swap, states

from horolog.storage import (
    Conversion,
    Files,
    Finding,
    Reindexing,
    Severity,
    Verification,
    find_target,
    look_at,
    open_segment,
    run_steps,
    walk_segment,
)


def wrong(path: Path) -> list[Finding]:
    steps = Verification.of(path).steps()
    return [
        step for step in steps if isinstance(step, Finding) and step.severity is not Severity.NOTE
    ]


def inspected(path: Path) -> list[int]:
    files = Files(read_only=True)
    (log,) = look_at(files, path)
    return [
        batch.header.base_offset
        for segment in log.paths
        for batch in walk_segment(*open_segment(files, segment))
        if batch.header.records_count
    ]


def converted(path: Path) -> int:
    converting = Conversion(find_target(path), 1, NOW, dry_run=True)
    return len(run_steps(converting.steps(), lambda _: None, lambda _: None))


def test_files_are_verified_and_inspected_as_before_a_swap_or_after_it(tmp_path: Path) -> None:
    for path, either in states(tmp_path, every=5):
        assert wrong(path) == [], path
        assert wrong(path / str(EVENTS)) == [], path
        assert inspected(path) in either, path
        count = converted(path)
        found = inspected(path)
        end_swap(path)
        assert (inspected(path), converted(path)) == (found, count), path


def test_indexes_are_rebuilt_once_a_swap_has_ended(tmp_path: Path) -> None:
    refused = 0
    for path, _ in states(tmp_path, every=9):
        is_within = any(path.rglob("*.swap"))
        done = run_steps(Reindexing(find_target(path), 0).steps(), lambda _: None, lambda _: None)
        assert any(each.refused for each in done) == is_within, path
        refused += is_within
        end_swap(path)
        assert wrong(path) == []
    assert refused
