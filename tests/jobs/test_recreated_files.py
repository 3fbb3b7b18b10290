"""Files of a topic that was deleted and created again: never mixed with what was read before."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from archive_reading import records_of
from batches import fill
from in_process_spark import InProcessSpark
from log_reading import Read
from mirror_lab import MirrorLab
from overrides import override
from running_broker import RunningBroker, a_broker
from streaming_query import EARLIEST, Query

from horolog.client import Client
from horolog.errors import Misconfigured
from horolog.jobs import archive
from horolog.sources import DataLost

NOW = 1_700_000_000_000


broker = a_broker(
    "clicks",
    of_topics={"retention_ms": "-1"},
    now_ms=None,
    prepare=lambda its: fill(its.client, "clicks", [NOW] * 5, size=1, key=b"k", value=b"old"),
)


@pytest.fixture
def again(broker: RunningBroker, client: Client) -> Callable[[], None]:
    """Creates the topic again, with more records than it had."""

    def create() -> None:
        client.delete_topics(["clicks"])
        broker.create_topic("clicks", retention_ms="-1")
        fill(client, "clicks", [NOW] * 8, size=1, key=b"k", value=b"new")

    return create


def values(rows: list[dict]) -> set[bytes]:
    return {bytes(row["value"]) for row in rows}


def test_an_archive_refuses_them(
    broker: RunningBroker, again: Callable[[], None], tmp_path: Path
) -> None:
    given = {"archive": tmp_path / "archive", "state": tmp_path / "state"}
    assert archive(InProcessSpark(), source=broker.log_dir, topics="clicks", **given).records == 5
    again()
    done = archive(InProcessSpark(), source=broker.log_dir, topics="clicks", **given)
    assert done.records == 0
    assert "deleted and created again" in done.refused["clicks-0"]
    assert values(records_of(tmp_path / "archive")) == {b"old"}


def test_a_mirror_refuses_them(
    broker: RunningBroker,
    again: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab, copy = MirrorLab(tmp_path, monkeypatch), tmp_path / "copy"
    assert lab.run(broker.log_dir, copy, "clicks").records == 5
    ids = [
        (root / "clicks-0" / "partition.metadata").read_text() for root in (broker.log_dir, copy)
    ]
    assert ids[0].splitlines() == ids[1].splitlines(), "the copy is of the same topic"
    again()
    done = lab.run(broker.log_dir, copy, "clicks")
    assert done.records == 0
    assert any("deleted and created again" in error for error in done.errors)
    assert values(Read(copy).rows()) == {b"old"}


def test_a_mirror_from_before_ids_were_noted_goes_on(
    broker: RunningBroker,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = MirrorLab(tmp_path, monkeypatch)
    metadata = broker.log_dir / "clicks-0" / "partition.metadata"
    known = metadata.read_text()
    metadata.unlink()
    assert lab.run(broker.log_dir, tmp_path / "copy", "clicks").records == 5
    metadata.write_text(known)
    fill(client, "clicks", [NOW] * 2, size=1, key=b"k", value=b"old")
    assert lab.run(broker.log_dir, tmp_path / "copy", "clicks").records == 2
    metadata.write_text("version: 0\ntopic_id: " + "A" * 21 + "g")
    assert lab.run(broker.log_dir, tmp_path / "copy", "clicks").errors


def test_a_stream_ends_unless_data_may_be_lost(
    broker: RunningBroker, again: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    override(monkeypatch, "horolog.spark", IDLE_WAIT_MS=1, DISCOVERY_S=0)
    strict = Query(broker.log_dir, subscribe="clicks", **EARLIEST)
    lenient = Query(broker.log_dir, subscribe="clicks", failOnDataLoss="false", **EARLIEST)
    for query in (strict, lenient):
        assert len(query.next() or ()) == 5
    again()
    with pytest.raises(DataLost, match="deleted and created again"):
        strict.next()
    with pytest.raises(DataLost, match="deleted and created again"):
        strict.again().next()
    assert len(lenient.next() or ()) == 3


def test_a_task_reads_no_file_of_the_topic_that_took_its_place(
    broker: RunningBroker, again: Callable[[], None]
) -> None:
    reader, partitions = Read(broker.log_dir, subscribe="clicks").plan()
    again()
    with pytest.raises(DataLost, match=r"clicks-0.* was deleted before it was read"):
        [*reader.read(partitions[0])]


def test_copies_of_two_topics_are_no_replicas(
    broker: RunningBroker, again: Callable[[], None], tmp_path: Path
) -> None:
    before, after = tmp_path / "backups" / "before", tmp_path / "backups" / "after"
    shutil.copytree(broker.log_dir / "clicks-0", before / "clicks-0")
    again()
    shutil.copytree(broker.log_dir / "clicks-0", after / "clicks-0")
    with pytest.raises(
        Misconfigured, match=r"after/clicks-0 and .*before/clicks-0 are of two topics"
    ):
        Read(tmp_path / "backups").rows()
    assert values(Read(before).rows()) == {b"old"}
    assert values(Read(after).rows()) == {b"new"}
    (before / "clicks-0").rename(before / "clicks-1")
    with pytest.raises(Misconfigured, match="are of two topics named clicks"):
        Read(tmp_path / "backups").rows()
