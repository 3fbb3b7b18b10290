"""Hashes of topics: numbers that Apache Kafka 4.4.0's classes gave."""

import subprocess
import sys
from uuid import UUID

from horolog.groups import metadata_hash, topic_hash

FIRST, SECOND = UUID(int=1), UUID("6fa3d0e2-0001-4000-8000-000000000001")


def test_hashes_are_those_of_apache_kafka() -> None:
    first = topic_hash(FIRST, "t", 3)
    second = topic_hash(SECOND, "u", 1, [["b", "a"]])
    assert (first, second) == (7817279178879169120, -5825340267698531294)
    assert metadata_hash({"u": second, "t": first}) == 7588125689643380087
    assert metadata_hash({}) == 0


def test_every_change_of_a_topic_changes_its_hash() -> None:
    racks = [["a"], [], ["b", "a"]]
    hashes = [
        topic_hash(FIRST, "t", 3, racks),
        topic_hash(SECOND, "t", 3, racks),
        topic_hash(FIRST, "u", 3, racks),
        topic_hash(FIRST, "t", 4, [*racks, []]),
        topic_hash(FIRST, "t", 3),
        topic_hash(FIRST, "t", 3, [[], ["a"], ["b", "a"]]),
        topic_hash(FIRST, "t", 3, [["a"], [], ["ba"]]),
    ]
    assert len(set(hashes)) == len(hashes)
    assert topic_hash(FIRST, "t", 3, [["a"], [], ["a", "b"]]) == hashes[0]
    assert topic_hash(FIRST, "t", 3, [[], [], []]) == topic_hash(FIRST, "t", 3)


def test_the_library_is_loaded_with_the_first_hash() -> None:
    code = (
        "import sys, horolog.broker.service, horolog.cli, horolog.groups as groups\n"
        "groups.topic_hash\n"
        "assert 'xxhash' not in sys.modules\n"
        "groups.metadata_hash({'t': 1})\n"
        "assert 'xxhash' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
