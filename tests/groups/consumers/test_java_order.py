"""Orders of Java's strings, Kafka's ids and hash tables."""

from uuid import UUID

from horolog.groups import map_order, set_order, text_hash, text_key, uuid_hash, uuid_key


def test_texts_have_javas_hashes_and_its_order() -> None:
    hashes = {"": 0, "Aa": 2112, "BB": 2112, "polygenelubricants": 1 << 31, "é": 233}
    assert {text: text_hash(text) for text in hashes} == hashes
    assert text_hash("\U0001f980") == 0xD83E * 31 + 0xDD80
    ordered = ["", "a", "ab", "b", "\U0001f980", "\ufffd"]
    assert sorted(ordered, key=text_key) == ordered
    assert text_hash("\ud800") == 0xD800, "a request may have half of a pair"


def test_ids_are_sorted_as_two_signed_halves() -> None:
    texts = ["80" + "00" * 15, "00" * 8 + "80" + "00" * 7, "00" * 16, "00" * 15 + "01", "7f" * 16]
    ordered = [UUID(hex=text) for text in texts]
    assert sorted(ordered, key=uuid_key) == ordered
    assert [uuid_hash(UUID(hex=text)) for text in texts] == [1 << 31, 1 << 31, 0, 1, 0]


def test_a_hash_table_has_entries_by_bucket_and_grows_with_them() -> None:
    assert map_order([16, 0, 17, 1], int) == [16, 0, 17, 1]
    assert map_order([33, *range(12)], int) == [0, 33, *range(1, 12)], "32 buckets for 13"
    assert map_order([17, *range(11)], int) == [0, 17, *range(1, 11)], "16 buckets for 12"
    assert set_order([17, *range(11)], int) == [*range(11), 17], "32 buckets for 12 at once"
    assert map_order([1 << 16, 1, 0], int) == [0, 1 << 16, 1], "high bits count"
