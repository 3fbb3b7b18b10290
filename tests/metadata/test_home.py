from pathlib import Path

import pytest

from horolog.metadata import PROPERTIES, Signs, is_own, signs_in
from horolog.storage import Files, MetaProperties

KAFKAS = MetaProperties("cluster", 1, None, {})
OURS = KAFKAS._replace(others=PROPERTIES)


@pytest.mark.parametrize(
    ("signs", "owns"),
    [
        (Signs(None), True),  # new, or partitions that were copied there
        (Signs(True, meta=KAFKAS, internal={"__consumer_offsets"}), True),  # after a stay
        (Signs(True, has_file_beside=True), True),  # taken over
        (Signs(False, meta=KAFKAS), False),
        (Signs(None, meta=KAFKAS), False),  # its controllers are elsewhere
        (Signs(None, internal={"__transaction_state"}), False),
        (Signs(None, has_file_beside=True, meta=OURS), False),
        (Signs(None, has_partitions=True, has_state_beside=True), False),
        (Signs(None, has_state_beside=True), True),  # of a directory of the same name
        (Signs(True, has_state_beside=True, meta=KAFKAS), True),  # taken over
        (Signs(False, meta=OURS), True),  # damaged where the mark was
        (Signs(None, meta=OURS, internal={"__consumer_offsets"}), True),  # its metadata is lost
    ],
)
def test_whose_directory_it_is_follows_from_what_it_has(signs: Signs, owns: bool) -> None:
    assert is_own(signs) is owns


def test_signs_are_read_off_the_directory(tmp_path: Path) -> None:
    assert signs_in(Files(), tmp_path, None) == Signs(None, internal=set())
    for name in ("__cluster_metadata-0", "__transaction_state-3", "t-0"):
        (tmp_path / name).mkdir()
    for name in ("horolog-metadata.log", "horolog-reserve"):
        (tmp_path / name).touch()
    lines = "version=1\ncluster.id=c\nnode.id=1\nhorolog.metadata=own\n"
    (tmp_path / "meta.properties").write_text(lines)
    meta = MetaProperties("c", 1, None, PROPERTIES)
    assert signs_in(Files(), tmp_path, False) == Signs(
        False,
        True,
        {"__transaction_state"},
        meta,
        was_served=True,
        was_served_here=True,
        has_partitions=True,
    )
    (tmp_path / "meta.properties").write_bytes(b"\xff\0")
    found = signs_in(Files(), tmp_path, None).meta
    assert found is not None
    assert not found.others
