from uuid import UUID

import pytest

from horolog.storage import TopicPartition, names

UNIQUE = UUID("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("events-0", TopicPartition("events", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("a.b_c-3", TopicPartition("a.b_c", 3)),
        ("events", None),
        ("events-", None),
        ("-1", None),
        ("events-01", None),
        ("events-0.0123456789abcdef0123456789abcdef-delete", None),
        ("events-0.0123456789abcdef0123456789abcdef-stray", None),
        ("events-0.0123456789abcdef0123456789abcdef-future", None),
        ("..-0", None),
        ("t" * 249 + "-0", TopicPartition("t" * 249, 0)),
        ("t" * 250 + "-0", None),
    ],
)
def test_a_directory_name_has_its_partition(name: str, expected: TopicPartition | None) -> None:
    assert names.partition_of(name) == expected


def test_a_segment_file_has_twenty_digits() -> None:
    assert names.segment_file(45, ".timeindex") == "00000000000000000045.timeindex"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000045.log", 45),
        ("00000000000000000045.log.deleted", None),
        ("45.log", None),
        ("0000000000000000004x.log", None),
        ("00000000000000000045.index", None),
    ],
)
def test_a_file_name_has_its_base_offset(name: str, expected: int | None) -> None:
    assert names.base_offset_of(name, ".log") == expected


def test_a_deleted_partition_is_known_by_its_name() -> None:
    name = names.deleted_directory(TopicPartition("events", 3), UNIQUE)
    assert name == "events-3.0123456789abcdef0123456789abcdef-delete"
    assert names.is_deleted_directory(name)
    assert not names.is_deleted_directory("events-3")


def test_the_name_of_a_deleted_partition_fits_a_file_system() -> None:
    name = names.deleted_directory(TopicPartition("t" * 249, 1_000_000), UNIQUE)
    assert len(name) == 255
    assert names.is_deleted_directory(name)
