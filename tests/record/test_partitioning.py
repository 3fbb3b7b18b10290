"""The partition of a key is the one that Kafka's own producers choose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.record import murmur2, partition_of_key, partitions_of_keys

# From the tests of Kafka's Java client (UtilsTest.testMurmur2).
GOLDEN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def partitions(keys: list[bytes], count: int, lead: bytes = b"") -> list[int]:
    ends = np.cumsum([len(lead), *map(len, keys)], dtype=np.int64)
    data = np.frombuffer(lead + b"".join(keys), np.uint8)
    return partitions_of_keys(ends, data, count).tolist()


@pytest.mark.parametrize(("key", "expected"), GOLDEN.items())
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    positive = expected & 0x7FFFFFFF
    assert partition_of_key(key, 1000) == positive % 1000
    assert partitions([key], 0x7FFFFFFF, b"x") == [positive % 0x7FFFFFFF]
    assert partitions([key] * 100, 1000) == [positive % 1000] * 100


@given(
    keys=st.lists(st.binary(max_size=40) | st.binary(min_size=200, max_size=300), max_size=30),
    repeat=st.sampled_from((1, 20)),
    count=st.integers(1, 5000),
    lead=st.binary(max_size=5),
)
def test_many_keys_at_once_go_where_each_goes_alone(
    keys: list[bytes], repeat: int, count: int, lead: bytes
) -> None:
    keys = keys * repeat
    assert partitions(keys, count, lead) == [partition_of_key(key, count) for key in keys]
