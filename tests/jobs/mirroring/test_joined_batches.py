"""A mirror that sends small batches as larger ones; its tasks run in this process."""

import random
from itertools import product
from pathlib import Path

import pytest
from examples import some_of
from mirror_lab import (
    NO_SPARK,
    T0_MS,
    MirrorLab,
    records,
    write_log,
)
from running_broker import RunningBroker

from horolog.errors import Misconfigured
from horolog.jobs.comparing import compare
from horolog.record import Codec, LogRecord, build_batch


def headers_of(broker: "RunningBroker", topic: str) -> list[int]:
    """How many records each batch of partition 0 has."""
    return [each.records_count for each in broker.headers(topic) if not each.is_control]


@pytest.mark.parametrize("codec", Codec)
def test_few_batches_hold_the_same_records(lab: MirrorLab, codec: Codec) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    for number in range(40):
        rows = records(5 * number, 5, headers=(("h", b"%d" % number),))
        lab.produce("t", 0, rows, codec=codec)
    done = lab.run(batch_bytes=4_000)
    assert not done.errors
    assert done.records == 200
    assert lab.rows("t") == lab.source_rows("t")
    assert len(lab.source.headers("t")) == 40
    joined = [header for header in lab.target.headers("t") if not header.is_control]
    assert len(joined) <= 5
    assert max(header.batch_length for header in joined) < 4_000
    assert {header.codec for header in joined} == {codec}


@pytest.mark.parametrize("codec", Codec)
def test_what_is_not_compressed_is_joined_unless_another_size_is_given(
    lab: MirrorLab, codec: Codec
) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    for number in range(6):
        how = Codec.NONE if number in (2, 3) else codec
        lab.produce("t", 0, records(5 * number, 5), codec=how)
    assert not lab.run(batch_bytes=None).errors
    assert lab.rows("t") == lab.source_rows("t")
    assert headers_of(lab.target, "t") == ([30] if codec is Codec.NONE else [5, 5, 10, 5, 5])
    for number in (6, 7):
        lab.produce("t", 0, records(5 * number, 5))
    assert not lab.run(batch_bytes=0).errors
    assert headers_of(lab.target, "t")[-2:] == [5, 5]


def test_offsets_are_mapped_as_without(lab: MirrorLab, tmp_path: Path) -> None:
    batches = [build_batch(records(5 * at, 5), base_offset=7 * at) for at in range(30)]
    write_log(tmp_path / "log" / "t-0", batches)
    done = lab.run(tmp_path / "log", batch_bytes=100_000)
    assert not done.errors
    assert headers_of(lab.target, "t") == [150]
    asked = {"source": tmp_path / "log", "target": lab.target.address, "mirror_state": lab.state}
    assert compare(NO_SPARK, topics="t", **asked).is_equal


# In `make test` each size of the next run, each end and each codec.
@pytest.mark.parametrize(
    "how",
    some_of(product([1, 7, 1 << 60], [0, None, 700, 100_000], [Codec.LZ4, Codec.NONE]), 5),
    ids=str,
)
def test_a_killed_run_is_gone_on_with_whatever_size_the_next_one_has(
    lab: MirrorLab, how: tuple[int, int | None, Codec]
) -> None:
    after, later, codec = how
    lab.source.create_topic("t", 1, retention_ms="-1")
    for number in range(30):
        lab.produce("t", 0, records(5 * number, 5), codec=codec)
    lab.killed_before_the_end(after=after, batch_bytes=1_500)
    assert max(headers_of(lab.target, "t")) > 5
    assert not lab.run(batch_bytes=later).errors
    assert lab.rows("t") == lab.source_rows("t")


def test_two_attempts_at_once_write_each_record_once(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    for number in range(100):
        lab.produce("t", 0, records(5 * number, 5))
    how = {"batch_bytes": 1_000}
    lab.run_twice_at_once(**how)  # one may end the transaction of the other
    assert not lab.run().errors
    assert lab.rows("t") == lab.source_rows("t")


def test_a_batch_that_the_target_refuses_does_not_hold_up_those_before_it(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 2, retention_ms="-1")
    bounds = {"message_timestamp_before_max_ms": str(1 << 50)}
    lab.target.create_topic("t", 2, retention_ms="-1", **bounds)
    for partition in range(2):
        for number in range(20):
            rows = records(5 * number, 5)
            if partition and number == 13:
                rows[2] = LogRecord(-(1 << 60), b"k", b"refused")
            lab.produce("t", partition, rows)
    done = lab.run(batch_bytes=100_000)
    assert len(done.errors) == 1
    assert "t-1" in done.errors[0]
    assert lab.rows("t") == lab.source_rows("t")
    assert lab.rows("t", 1) == lab.source_rows("t", 1)[:65]
    assert done.partitions[1].offset == 65


def test_no_batch_becomes_larger_than_the_target_takes(lab: MirrorLab) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.target.create_topic("t", 1, retention_ms="-1", max_message_bytes="900")
    for number in range(20):
        lab.produce("t", 0, records(5 * number, 5))
    assert not lab.run(batch_bytes=100_000).errors
    assert max(headers_of(lab.target, "t")) > 5
    assert lab.rows("t") == lab.source_rows("t")


def test_what_grows_when_it_is_compressed_is_joined_for_a_target_of_small_batches(
    lab: MirrorLab,
) -> None:
    lab.source.create_topic("t", 1, retention_ms="-1")
    lab.target.create_topic("t", 1, retention_ms="-1", max_message_bytes="2000")
    noise = random.Random(7)
    for number in range(30):
        # Ten of them nearly fill such a batch, and gzip makes it larger than the target takes.
        rows = [LogRecord(T0_MS + number, None, noise.randbytes(184))]
        lab.produce("t", 0, rows, codec=Codec.GZIP)
    assert not lab.run(batch_bytes=100_000).errors
    assert headers_of(lab.target, "t") == [9, 9, 9, 3]
    assert lab.rows("t") == lab.source_rows("t")


def test_what_is_no_size_and_a_directory_are_refused(lab: MirrorLab, tmp_path: Path) -> None:
    lab.source.create_topic("t", 1)
    for batch_bytes in (-1, 1 << 40):
        with pytest.raises(Misconfigured, match="batch_bytes"):
            lab.run(target=lab.source.address, rename="(.*)=x", batch_bytes=batch_bytes)
    with pytest.raises(Misconfigured, match="directory gets the batches as they are"):
        lab.run(target=tmp_path / "copy", batch_bytes=1_000)
    assert not lab.state.exists()


def test_record_times_of_any_year_are_joined_or_left(lab: MirrorLab) -> None:
    unlimited = str((1 << 63) - 1)
    lab.source.create_topic("t", 1, retention_ms="-1", message_timestamp_after_max_ms=unlimited)
    times = (-5_000, -1, 0, T0_MS, (1 << 63) - 1, -(1 << 63), T0_MS)
    for time in times:
        lab.produce("t", 0, [LogRecord(time, b"k", b"v")])
    assert not lab.run(batch_bytes=100_000).errors
    assert lab.rows("t") == lab.source_rows("t")
    assert [row.timestamp for row in lab.rows("t")] == list(times)
