"""Comparisons of topics and directories; their tasks run in this process."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import generated_record
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from mirror_lab import (
    NO_SPARK,
    T0_MS,
    MirrorLab,
    produce,
    records,
    stamped,
    write_log,
)
from running_broker import MakeBroker

from horolog.errors import Misconfigured
from horolog.jobs.comparing import Compared, compare
from horolog.jobs.questions.hops import Hop
from horolog.jobs.selection import Selection
from horolog.record import Codec, LogRecord, build_batch

Compare = Callable[..., Compared]


@pytest.fixture
def compared() -> Compare:
    def run(source: object, target: object, **more: Any) -> Compared:
        return compare(NO_SPARK, source=str(source), target=str(target), **more)

    return run


def batches_of(
    rows: list[LogRecord], rng: random.Random, codec: Codec | None = None
) -> list[bytes]:
    """Rows in batches of random sizes."""
    found, offset = [], 0
    while offset < len(rows):
        size = rng.randrange(1, 8)
        part = rows[offset : offset + size]
        chosen = rng.choice(tuple(Codec)) if codec is None else codec
        found.append(build_batch(part, base_offset=offset, codec=chosen))
        offset += len(part)
    return found


@examples(1)
@given(seed=st.integers(0, 1 << 30), at=st.integers(0, 59), field=st.sampled_from("kvht="))
def test_the_first_difference_is_found_wherever_batches_end(
    tmp_path_factory: pytest.TempPathFactory, seed: int, at: int, field: str
) -> None:
    rng = random.Random(seed)
    path = tmp_path_factory.mktemp("logs")
    rows = [generated_record(rng) for _ in range(60)]
    changed = [*rows]
    old = rows[at]
    new = {
        "k": old._replace(key=b"other key"),
        "v": old._replace(value=None if old.value is not None else b""),
        "h": old._replace(headers=(*old.headers, ("more", None))),
        "t": old._replace(timestamp=old.timestamp ^ 1),
        "=": old,
    }[field]
    changed[at] = new
    for later in range(at + 1, 60, 7):
        changed[later] = changed[later]._replace(value=b"later") if field != "=" else changed[later]
    codec = rng.choice((None, Codec.NONE))
    write_log(path / "a" / "t-0", batches_of(rows, rng, codec))
    write_log(path / "b" / "t-0", batches_of(changed, rng, codec))
    found = compare(NO_SPARK, source=path / "a", target=path / "b")
    if field == "=":
        assert found.is_equal
        assert found.records == 60
        return
    (difference,) = found.differences
    assert (difference.offset, difference.target_offset) == (at, at)
    names = {"k": "key", "v": "value", "h": "headers", "t": "time"}
    assert difference.field == names[field]
    assert difference.source != difference.target


def test_equal_bytes_are_not_decoded_and_records_packed_otherwise_are(
    compared: Compare, tmp_path: Path
) -> None:
    rows = records(0, 30)
    write_log(
        tmp_path / "a" / "t-0", [build_batch(rows[:20]), build_batch(rows[20:], base_offset=20)]
    )
    write_log(
        tmp_path / "b" / "t-0",
        [build_batch(rows[:20]), build_batch(rows[20:], base_offset=20, codec=Codec.ZSTD)],
    )
    found = compared(tmp_path / "a", tmp_path / "b")
    assert (found.is_equal, found.records, found.same_bytes) == (True, 30, 20)


@pytest.mark.parametrize("lacks", ["source", "target"])
def test_records_that_one_side_lacks_are_named(
    compared: Compare, tmp_path: Path, lacks: str
) -> None:
    whole = [build_batch(records(0, 5)), build_batch(records(5, 5), base_offset=5)]
    whole.append(build_batch(records(10, 5), base_offset=10))
    for missing, offset in ((1, 5), (2, 10)):
        a, b = tmp_path / f"a{missing}", tmp_path / f"b{missing}"
        write_log(a / "t-0", whole)
        write_log(b / "t-0", [each for at, each in enumerate(whole) if at != missing])
        sides = (a, b) if lacks == "target" else (b, a)
        (found,) = compared(*sides).differences
        assert found.field == "record"
        assert "missing" in (found.target if lacks == "target" else found.source)
        assert (found.offset if lacks == "target" else found.target_offset) == offset
        assert f"{offset}" in str(found)
        ignoring = compared(*sides, ignore_offsets=True)
        assert not ignoring.is_equal


def test_offsets_and_kinds_of_times_count_as_asked(compared: Compare, tmp_path: Path) -> None:
    write_log(tmp_path / "a" / "t-0", [build_batch(records(0, 5))])
    write_log(tmp_path / "b" / "t-0", [build_batch(records(0, 5), base_offset=7)], 7)
    assert not compared(tmp_path / "a", tmp_path / "b").is_equal
    assert compared(tmp_path / "a", tmp_path / "b", ignore_offsets=True).is_equal
    same = [row._replace(timestamp=T0_MS) for row in records(0, 5)]
    write_log(tmp_path / "c" / "t-0", [build_batch(same)])
    write_log(tmp_path / "d" / "t-0", [stamped(records(0, 5), T0_MS)])
    assert compared(tmp_path / "c", tmp_path / "d").is_equal
    (found,) = compared(tmp_path / "c", tmp_path / "d", fields="key,type").differences
    assert (found.field, found.source, found.target) == ("type", "0", "1")
    with pytest.raises(Misconfigured, match="field colour"):
        compared(tmp_path / "c", tmp_path / "d", fields="colour")


def test_partitions_that_one_side_lacks_and_damage_are_differences(
    compared: Compare, tmp_path: Path
) -> None:
    good, later = build_batch(records(0, 5)), build_batch(records(5, 5), base_offset=5)
    damaged = bytearray(good)
    damaged[-1] ^= 1
    for name, number in (("a", 0), ("a", 1), ("a", 3), ("b", 0), ("b", 2)):
        write_log(tmp_path / name / f"t-{number}", [good])
    write_log(tmp_path / "b" / "t-3", [bytes(damaged)])
    write_log(tmp_path / "b" / "t-3", [later], 5)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert [(each.partition, each.field) for each in found.differences] == [
        (1, "partition"),
        (2, "partition"),
        (3, "error"),
    ]
    assert "damaged" in found.differences[2].target
    assert found.records == 5


def test_a_range_of_time_is_compared_alone(compared: Compare, tmp_path: Path) -> None:
    rows = records(0, 20)
    write_log(tmp_path / "a" / "t-0", [build_batch(rows)])
    rows[3] = rows[3]._replace(value=b"other")
    write_log(tmp_path / "b" / "t-0", [build_batch(rows)])
    assert not compared(tmp_path / "a", tmp_path / "b", to=T0_MS + 4).is_equal
    found = compared(tmp_path / "a", tmp_path / "b", from_=T0_MS + 4, to=T0_MS + 10)
    assert (found.is_equal, found.records) == (True, 6)


def test_a_mirror_is_proved_by_its_map_of_offsets(
    compared: Compare,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_broker: MakeBroker,
) -> None:
    lab = MirrorLab(tmp_path, monkeypatch)
    source, target = make_broker(), make_broker()
    source.create_topic("t", 2, retention_ms="-1")
    target.create_topic("west.t", 2, retention_ms="-1")
    produce(target.address, "west.t", 0, records(900, 3))
    asked = {"rename": "t=west.t", "from_": T0_MS + 2, "into_nonempty": True}
    for number in range(6):
        for partition in range(2):
            produce(source.address, "t", partition, records(5 * number, 5))
        lab.run(source.address, target.address, **asked)
    found = compared(source.address, target.address, topics="t", mirror_state=lab.state)
    assert found.is_equal, found.differences
    assert found.records == 2 * 28
    produce(target.address, "west.t", 1, records(901, 1))
    produce(source.address, "t", 1, records(30, 5))
    lab.run(source.address, target.address, **asked)
    (difference,) = compared(
        source.address, target.address, topics="t", mirror_state=lab.state
    ).differences
    assert (difference.partition, difference.field, difference.source) == (1, "record", "missing")
    assert "901" in difference.target


@pytest.mark.parametrize("more_at", ["source", "target"])
def test_a_partition_that_one_side_lacks_is_said_in_words(
    compared: Compare, tmp_path: Path, more_at: str
) -> None:
    for side in ("source", "target"):
        for number in range(2 if side == more_at else 1):
            write_log(tmp_path / side / f"t-{number}", [build_batch(records(0, 3))])
    (difference,) = compared(tmp_path / "source", tmp_path / "target").differences
    ours, theirs = ("there", "missing") if more_at == "source" else ("missing", "there")
    said = f"t-1: partition is {ours} at the source and {theirs} at the target"
    assert str(difference) == said


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_map_of_a_mirror_is_not_believed_of_a_topic_that_was_created_again(
    compared: Compare,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_broker: MakeBroker,
    side: str,
) -> None:
    lab = MirrorLab(tmp_path, monkeypatch, make_broker)
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.produce("t", 0, records(0, 5))
    lab.run()
    both = {"source": lab.source, "target": lab.target}
    both[side].client.delete_topics(["t"])
    both[side].create_topic("t", 1, retention_ms="-1")
    with pytest.raises(Misconfigured, match=f"t of the {side} was deleted and created again"):
        compared(lab.source.address, lab.target.address, topics="t", mirror_state=lab.state)
    with pytest.raises(Misconfigured, match=f"t of the {side} was deleted and created again"):
        Hop.of(
            lab.state,
            Selection.of(lab.source.address, "t"),
            Selection.of(lab.target.address, None, ".*"),
        )
