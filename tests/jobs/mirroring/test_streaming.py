"""A mirror that keeps running: what happens to its topics while it runs."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mirror_lab import MirrorLab, log_bytes, records
from patience import PATIENCE_S

from horolog.client import CommittedOffset
from horolog.jobs.mirroring import Control, Mirrored

Step = tuple[Callable[[Mirrored], bool], Callable[[], object]]


def follow(lab: MirrorLab, steps: list[Step], *arguments: Any, **more: Any) -> Mirrored:
    """Run a mirror; each step waits for what the mirror has done, and does something."""
    left, until = [*steps], time.monotonic() + PATIENCE_S

    def on_progress(done: Mirrored) -> None:
        assert time.monotonic() < until, done
        if left and left[0][0](done):
            left.pop(0)[1]()

    control = Control(on_progress=on_progress, should_stop=lambda: not left)
    return lab.run(*arguments, once=False, control=control, **more)


def at_least(count: int) -> Callable[[Mirrored], bool]:
    return lambda done: done.records >= count and done.lag == 0


def nothing() -> None:
    """The last step: the mirror ends."""


def test_what_appears_while_it_runs_is_mirrored(lab: MirrorLab) -> None:
    lab.source.create_topic("a.one", 1, retention_ms="-1")
    lab.produce("a.one", 0, records(0, 5))

    def add_partition() -> None:
        lab.source.client.create_partitions({"a.one": 2})
        lab.produce("a.one", 1, records(5, 5))

    def add_topic() -> None:
        lab.source.create_topic("a.two", 1, retention_ms="-1")
        lab.produce("a.two", 0, records(10, 5))

    def commit() -> None:
        lab.source.client.offset_commit("readers", {("a.one", 0): CommittedOffset(3)})

    done = follow(
        lab,
        [
            (at_least(5), add_partition),
            (at_least(10), add_topic),
            (at_least(15), commit),
            (at_least(15), nothing),
        ],
        topics=None,
        topics_pattern="a[.].*",
        groups="readers",
    )
    assert not done.errors
    assert lab.values("a.one", 1) == [b"%d" % number for number in range(5, 10)]
    assert lab.values("a.two") == [b"%d" % number for number in range(10, 15)]
    assert lab.target.client.offset_fetch("readers") == {("a.one", 0): CommittedOffset(3)}


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_deleted_while_it_runs_stops_alone(lab: MirrorLab, again: bool) -> None:
    for topic in ("t", "u"):
        lab.source.create_topic(topic, 1, retention_ms="-1")
        lab.produce(topic, 0, records(0, 5))

    def delete() -> None:
        lab.source.client.delete_topics(["t"])
        if again:
            lab.source.create_topic("t", 1, retention_ms="-1")
            lab.produce("t", 0, records(50, 9))

    done = follow(
        lab,
        [
            (at_least(10), delete),
            (
                lambda done: bool(done.errors),
                lambda: lab.produce("u", 0, records(5, 5)),
            ),
            (lambda done: done.records >= 15, nothing),
        ],
        topics="t,u",
    )
    (error,) = done.errors
    assert ("deleted and created again" if again else "t of the source was deleted") in error
    assert len(lab.values("t")) == 5
    assert len(lab.values("u")) == 10


def test_retention_that_is_faster_than_the_mirror_stops_the_partition(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 5))

    def lose() -> None:
        lab.produce("t", 0, records(5, 5))
        lab.produce("t", 0, records(10, 5))
        lab.source.delete_records("t", 10)

    done = follow(
        lab,
        [(at_least(5), lose), (lambda done: bool(done.errors), nothing)],
    )
    assert "begins at offset 10 and was mirrored up to 5" in done.errors[0]


def test_files_that_grow_come_into_a_directory(lab: MirrorLab, tmp_path: Path) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 5))
    done = follow(
        lab,
        [
            (at_least(5), lambda: lab.produce("t", 0, records(5, 5))),
            (at_least(10), nothing),
        ],
        lab.source.log_dir,
        tmp_path / "copy",
    )
    assert not done.errors
    assert log_bytes(tmp_path / "copy" / "t-0") == log_bytes(lab.source.log_dir / "t-0")
