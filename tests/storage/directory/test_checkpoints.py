from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from horolog.errors import CorruptFile
from horolog.storage import EpochStart, Files, MetaProperties, TopicPartition, checkpoints

FILES = Files()


def test_offsets_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {TopicPartition("a-b", 0): 7, TopicPartition("c", 12): 1 << 40}
    checkpoints.write_offsets(FILES, str(path), offsets)
    assert path.read_text() == "0\n2\na-b 0 7\nc 12 1099511627776\n"
    assert checkpoints.read_offsets(FILES, str(path)) == offsets
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_missing_checkpoint_is_empty(tmp_path: Path) -> None:
    assert checkpoints.read_offsets(FILES, str(tmp_path / "none")) == {}
    assert checkpoints.read_epochs(FILES, str(tmp_path / "none")) == []
    assert checkpoints.read_topic_id(FILES, str(tmp_path / "none")) is None
    assert checkpoints.read_meta_properties(FILES, str(tmp_path / "none")) is None
    (tmp_path / "empty").touch()  # as a Kafka makes it that has nothing to write yet
    assert checkpoints.read_offsets(FILES, str(tmp_path / "empty")) == {}
    assert checkpoints.read_append_time(FILES, str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "1\n0\n",
        "0\n2\na 0 7\n",
        "0\nx\n",
        "0\n1\na 0\n",
        "0\n1\na 0 seven\n",
        "0\n1\na b 0 7\n",
        "0\n-1\n",
        b"\xff\xfe\n0\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CorruptFile, match="checkpoint"):
        checkpoints.read_offsets(FILES, str(path))


def test_epochs_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = [EpochStart(0, 0), EpochStart(3, 45)]
    checkpoints.write_epochs(FILES, str(path), epochs)
    assert path.read_text() == "0\n2\n0 0\n3 45\n"
    assert checkpoints.read_epochs(FILES, str(path)) == epochs


@pytest.mark.parametrize(
    ("entries", "is_right"),
    [
        ("", True),
        ("0 0\n1 0\n", True),
        ("2147483647 9223372036854775807\n", True),
        ("2147483648 0\n", False),
        ("0 9223372036854775808\n", False),
        ("0 5\n1 4\n", False),
        ("0 0\n1 -1\n", False),
    ],
)
@pytest.mark.parametrize("space", [" ", "  "])  # Kafka reads any white space, and writes one
def test_epochs_are_read_up_to_the_ends_of_their_types(
    tmp_path: Path, entries: str, space: str, *, is_right: bool
) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    lines = entries.splitlines()
    path.write_text(f"0\n{len(lines)}\n{entries.replace(' ', space)}")
    if is_right:
        expected = [EpochStart(*map(int, line.split())) for line in lines]
        assert checkpoints.read_epochs(FILES, str(path)) == expected
        lines.append("")
    path.write_text(f"0\n{len(lines)}\n{entries.replace(' ', space)}")
    with pytest.raises(CorruptFile, match="leader-epoch-checkpoint"):
        checkpoints.read_epochs(FILES, str(path))


def test_epochs_that_do_not_grow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n2\n3 45\n3 60\n")
    with pytest.raises(CorruptFile, match="cannot follow"):
        checkpoints.read_epochs(FILES, str(path))


def test_a_topic_id_is_written_as_kafka_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    topic_id = UUID("6f0f3f4e-9d1e-4f6b-8f5d-3a1b5b7f9c21")
    checkpoints.write_topic_id(FILES, str(path), topic_id)
    assert path.read_text() == "version: 0\ntopic_id: bw8_Tp0eT2uPXTobW3-cIQ"
    assert checkpoints.read_topic_id(FILES, str(path)) == topic_id


@pytest.mark.parametrize(
    "text", ["version: 0\n", "topic_id: short", "topic_id: " + "!" * 22, f"topic_id: {'A' * 22}"]
)
def test_what_is_no_topic_id_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(text)
    with pytest.raises(CorruptFile):
        checkpoints.read_topic_id(FILES, str(path))


def test_both_versions_of_meta_properties_are_read(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("#\n#Mon\nversion=1\nnode.id=4\ncluster.id=abc\ndirectory.id=def\n")
    read = checkpoints.read_meta_properties(FILES, str(path))
    assert read == MetaProperties("abc", 4, "def", {})
    path.write_text("version=0\nbroker.id=2\ncluster.id=abc\n")
    read = checkpoints.read_meta_properties(FILES, str(path))
    assert read == MetaProperties("abc", 2, None, {}, version=0)


def test_meta_properties_keep_what_we_do_not_know(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.properties")
    meta = MetaProperties("abc", 4, "def", {"later": "x=y"})
    checkpoints.write_meta_properties(FILES, path, meta)
    assert checkpoints.read_meta_properties(FILES, path) == meta


@pytest.mark.parametrize("last_ms", [1_700_000_000_000, -5, (1 << 63) - 1])
@pytest.mark.parametrize("resets", [0, 3])
def test_an_append_time_is_kept(tmp_path: Path, last_ms: int, resets: int) -> None:
    path = str(tmp_path / "append-time-checkpoint")
    floor = checkpoints.AppendTimeFloor(last_ms, resets)
    checkpoints.write_append_time(FILES, path, floor)
    assert checkpoints.read_append_time(FILES, path) == floor


def test_resets_of_append_times_are_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "append-time-resets")
    resets = [
        checkpoints.AppendTimeReset(7, 1_800_000_000_000, 1_700_000_000_000, 1_700_000_000_000),
        checkpoints.AppendTimeReset(7, 1_700_000_000_000, -5, -5),
    ]
    checkpoints.write_append_time_resets(FILES, path, resets)
    assert checkpoints.read_append_time_resets(FILES, path) == resets
    assert checkpoints.read_append_time_resets(FILES, f"{path}.none") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n",
        "0\nx\n",
        "1\n5\n",
        "0\n5\n6\n",
        "0\n5",
        "1\n5\n-6\n",
        "2\n5\n",
        "0\n" + "9" * 20 + "\n",
    ],
)
def test_what_is_no_append_time_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "append-time-checkpoint"
    path.write_text(text)
    with pytest.raises(CorruptFile, match="no append time"):
        checkpoints.read_append_time(FILES, str(path))
