import io
import json

import pytest

from horolog.cli.lines import BadLineError, LineFormat, read_chunks
from horolog.record import LogRecord, murmur2, partition_of_key

NOW_MS = 1_795_165_200_000


def read(line: str, **options: object) -> LogRecord:
    return LineFormat(**options).read(7, line.encode(), NOW_MS).record


def test_a_line_is_a_value_of_now() -> None:
    assert read("hello: world") == LogRecord(NOW_MS, None, b"hello: world")


def test_a_separator_ends_the_key_once() -> None:
    assert read("k:v:w", key_separator=b":") == LogRecord(NOW_MS, b"k", b"v:w")
    assert read(":v", key_separator=b":") == LogRecord(NOW_MS, b"", b"v")
    with pytest.raises(BadLineError, match=r"line 7: no ':' between key and value"):
        read("kv", key_separator=b":")


def test_a_time_for_all_headers_for_all_and_a_word_for_nothing() -> None:
    record = read("NULL", timestamp_ms=5, headers=(("h", b"1"),), null=b"NULL")
    assert record == LogRecord(5, None, None, (("h", b"1"),))


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        ('{"at": 1795165200123}', 1_795_165_200_123),
        ('{"at": 1795165200123.0}', 1_795_165_200_123),
        ('{"at": "2026-11-20T09:00:00Z"}', NOW_MS),
        ('{"at": "-15m"}', NOW_MS - 900_000),
    ],
)
def test_the_time_can_be_a_field_of_the_value(value: str, time_ms: int) -> None:
    record = read(value, timestamp_field="at")
    assert (record.timestamp, record.value) == (time_ms, value.encode())


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ('{"at": 1795165200}', "looks like seconds"),
        ('{"at": true}', "True is not a time"),
        ('{"at": 1.5}', "1.5 is not a time"),
        ('{"at": null}', "None is not a time"),
        ('{"at": "2026-11-20T09:00"}', "has no zone"),
        ('{"when": 1}', "no field 'at'"),
        ("[1]", "not a JSON object"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_line_without_a_usable_time_is_refused_with_its_number(
    value: str, complaint: str
) -> None:
    with pytest.raises(BadLineError, match=f"line 7: .*{complaint}"):
        read(value, timestamp_field="at")


def test_the_key_can_be_a_field_of_the_value() -> None:
    assert read('{"id": "x"}', key_field="id").key == b"x"
    assert read('{"id": 5}', key_field="id").key == b"5"
    assert read('{"id": null}', key_field="id").key is None


def test_json_lines_are_whole_records() -> None:
    fields = {
        "timestamp": 1795165200000000,  # microseconds, kept: this is what a log held
        "partition": 3,
        "key_base64": "/w==",
        "value": None,
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }
    line = LineFormat(shape="json").read(1, json.dumps(fields).encode(), NOW_MS)
    assert line.partition == 3
    assert line.record == LogRecord(1795165200000000, b"\xff", None, (("a", b"1"), ("b", None)))


def test_json_lines_can_have_formatted_times() -> None:
    record = read('{"time": "2026-11-20T08:00Z", "value": {"a": 1}}', shape="json")
    assert (record.timestamp, record.value) == (NOW_MS - 3_600_000, b'{"a": 1}')
    assert read('{"value": "x"}', shape="json").timestamp == NOW_MS
    assert read('{"value": "x", "timestamp": 9}', shape="json", timestamp_ms=5).timestamp == 5


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"value_base64": "%"}', "value_base64 is not base64"),
        ('{"headers": [5]}', "no field 'key'"),
        ('{"headers": 5}', "not iterable"),
        ("text", "not JSON"),
    ],
)
def test_json_lines_that_are_no_records_are_refused(line: str, complaint: str) -> None:
    with pytest.raises(BadLineError, match=complaint):
        read(line, shape="json")


class Trickle(io.RawIOBase):
    """Bytes that arrive in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        piece = self.pieces.pop(0) if self.pieces else b""
        buffer[: len(piece)] = piece
        return len(piece)


def test_lines_are_passed_on_as_soon_as_they_are_whole() -> None:
    with io.BufferedReader(Trickle(b"a\nb\nc", b"d", b"\n", b"\r\ne")) as stream:
        chunks = read_chunks(stream)
        assert list(chunks) == [[b"a", b"b"], [b"cd"], [b""], [b"e"]]


def test_nothing_is_no_line() -> None:
    assert list(read_chunks(io.BytesIO(b""))) == []
    assert list(read_chunks(io.BytesIO(b"\n"))) == [[b""]]


@pytest.mark.parametrize(
    ("key", "hash_of_it"),
    [  # Utils.murmur2 of the Java client
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_go_where_kafkas_producers_send_them(key: bytes, hash_of_it: int) -> None:
    assert murmur2(key) == hash_of_it & 0xFFFFFFFF
    assert partition_of_key(key, 7) == (hash_of_it & 0x7FFFFFFF) % 7
