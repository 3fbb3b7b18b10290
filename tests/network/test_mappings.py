"""Memory of large requests: used again, but never while anything refers to it."""

import numpy as np

from horolog.network import Mappings

MIB = 1 << 20


def test_memory_is_lent_again_once_nothing_refers_to_it() -> None:
    mappings = Mappings()
    lent = mappings.lend(3 * MIB)
    lent[:5] = b"first"
    del lent
    assert mappings.idle_bytes == 3 * MIB
    assert bytes(mappings.lend(3 * MIB - 10)[:5]) == b"first"
    assert mappings.idle_bytes == 3 * MIB


def test_memory_with_a_view_of_a_view_is_not_lent_again() -> None:
    mappings = Mappings()
    lent = mappings.lend(3 * MIB)
    lent[100:105] = b"batch"
    views = [lent[100:200].toreadonly()[:5], np.frombuffer(lent[100:105], np.uint8)]
    del lent
    while views:
        assert mappings.idle_bytes == 0
        mappings.lend(3 * MIB)[100:105] = b"other"
        assert bytes(views[-1]) == b"batch"
        mappings.release_idle()
        mappings.release_idle()
        views.pop()
    assert mappings.idle_bytes == 3 * MIB


def test_a_request_gets_memory_of_its_size_or_more() -> None:
    mappings = Mappings()
    del (lent := [mappings.lend(MIB), mappings.lend(4 * MIB)])[:]
    assert len(mappings.lend(2 * MIB)) == 2 * MIB
    lent = [mappings.lend(size) for size in (4 * MIB, MIB, 5 * MIB)]
    assert [len(view) for view in lent] == [4 * MIB, MIB, 5 * MIB]


def test_a_small_request_is_not_lent_the_memory_of_a_large_one() -> None:
    mappings = Mappings()
    del (lent := [mappings.lend(32 * MIB)])[:]
    slow = [mappings.lend(300 << 10) for _ in range(3)]
    assert mappings.idle_bytes == 32 * MIB
    slow.clear()
    mappings.lend(17 * MIB)
    assert mappings.idle_bytes == 32 * MIB
    assert not lent


def test_idle_memory_is_bounded() -> None:
    mappings = Mappings(most_idle_bytes=4 * MIB)
    del (lent := [mappings.lend(MIB) for _ in range(8)])[:]
    assert mappings.idle_bytes == 4 * MIB
    del (lent := [mappings.lend(5 * MIB)])[:]
    assert mappings.idle_bytes == 4 * MIB
    assert not lent


def test_memory_that_was_not_used_for_a_while_is_released() -> None:
    mappings = Mappings()
    mappings.lend(MIB)
    mappings.release_idle()
    assert mappings.idle_bytes == MIB
    mappings.release_idle()
    assert mappings.idle_bytes == 0
