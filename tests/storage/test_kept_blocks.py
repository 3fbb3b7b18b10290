"""Blocks of indexes that are kept in memory."""

from array import array

from horolog.storage import Columns, KeptBlocks


def block(size: int) -> Columns:
    return array("b", bytes(size - 1)), array("b", bytes(1))


def test_blocks_used_longest_ago_make_room() -> None:
    kept, index = KeptBlocks(most_bytes=30), 7
    for number in (0, 1, 2):
        kept.keep(index, number, block(10))
    assert kept.get(index, 0) is not None
    kept.keep(index, 3, block(10))
    assert [number for number in range(4) if kept.get(index, number) is not None] == [0, 2, 3]


def test_a_block_that_is_kept_again_counts_once() -> None:
    kept, index = KeptBlocks(most_bytes=30), 7
    for size in (10, 20, 30):
        kept.keep(index, 0, block(size))
    assert kept.get(index, 0) == block(30)


def test_blocks_of_one_index_are_not_those_of_another() -> None:
    kept = KeptBlocks()
    kept.keep(7, 0, block(5))
    assert kept.get(8, 0) is None


def test_a_block_larger_than_all_room_is_not_kept() -> None:
    kept, index = KeptBlocks(most_bytes=9), 7
    kept.keep(index, 0, block(10))
    assert kept.get(index, 0) is None
    kept.keep(index, 1, block(9))
    assert kept.get(index, 1) is not None
