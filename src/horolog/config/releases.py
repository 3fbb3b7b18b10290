"""Releases of Apache Kafka in settings, and what each stores and fetches.

`message.format.version`, `log.message.format.version` and `inter.broker.protocol.version` name a
release (`0.10.2`, `2.8`, with or without what follows: `0.10.2.1`), or one of the protocol
versions in it (`2.8-IV1`).
"""

from typing import Final

IGNORED_SINCE: Final = (3, 0)
"""Inter-broker protocol from which on Kafka always stores format v2."""

ZSTD_SINCE: Final = (2, 1)
"""Inter-broker protocol from which on Kafka accepts zstd (KIP-110)."""

# The number of protocol versions of each release; 0 of those that have none by a name of its own.
_RELEASES: Final = {
    "0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 2, "0.10.1": 3, "0.10.2": 1,
    "0.11.0": 3, "1.0": 1, "1.1": 1, "2.0": 2, "2.1": 3, "2.2": 2, "2.3": 2, "2.4": 2, "2.5": 1,
    "2.6": 1, "2.7": 3, "2.8": 2, "3.0": 2, "3.1": 1, "3.2": 1, "3.3": 4, "3.4": 1, "3.5": 3,
    "3.6": 3, "3.7": 5, "3.8": 1, "3.9": 1,
}  # fmt: skip
_VERSIONS: Final = frozenset(_RELEASES) | {
    f"{release}-IV{number}" for release, count in _RELEASES.items() for number in range(count)
}
_PLACES: Final = {release: place for place, release in enumerate(_RELEASES)}
_FETCH_VERSIONS: Final = (
    (("0.8.0", 0), 0), (("0.9.0", 0), 1), (("0.10.0", 0), 2), (("0.10.1", 1), 3),
    (("0.11.0", 0), 4), (("0.11.0", 1), 5), (("1.1", 0), 7), (("2.0", 1), 8), (("2.1", 2), 10),
    (("2.3", 1), 11), (("2.7", 1), 12), (("3.1", 0), 13), (("3.5", 0), 14), (("3.5", 1), 15),
    (("3.7", 4), 16), (("3.9", 0), 17),
)  # fmt: skip
_FIRST_WITH_V1: Final = (0, 10)
_FIRST_WITH_V2: Final = (0, 11)


def is_release(text: str) -> bool:
    """True if Kafka 3.9 knows a version by this name."""
    return _key(text) in _VERSIONS


def release_of(text: str) -> tuple[int, int]:
    """Return the first two numbers of a release, for comparisons."""
    major, minor, *_ = _key(text).partition("-")[0].split(".")
    return int(major), int(minor)


def record_format_of(text: str) -> int:
    """Return the record format that a release stores: 0, 1 or 2 (KIP-32, KIP-98)."""
    release = release_of(text)
    return 0 if release < _FIRST_WITH_V1 else 1 if release < _FIRST_WITH_V2 else 2


def replica_fetch_version(text: str) -> int:
    """Return the version of Fetch that a follower with this inter-broker protocol sends.

    So a leader that stores a newer record format converts for it (KIP-32, phases 1 and 2): v0 and
    v1 get format v0, v2 and v3 get v1. A release stands for its last protocol version.
    """
    key, _, number = _key(text).partition("-IV")
    place = _PLACES[key], int(number) if number else max(0, _RELEASES[key] - 1)
    return max(
        version for first, version in _FETCH_VERSIONS if (_PLACES[first[0]], first[1]) <= place
    )


def _key(text: str) -> str:
    parts = text.split(".")
    return ".".join(parts[: 3 if text.startswith("0.") else 2])
