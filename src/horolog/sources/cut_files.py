"""The file of a cut: JSON that readers take in the place of a time (docs/as-of.md)."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from horolog.clock import moment_ms
from horolog.errors import Misconfigured
from horolog.json_text import Natural, from_json, read_as
from horolog.storage.names import TopicPartition
from horolog.times import format_moment

__all__ = ["AsOf", "Cut", "CutEntry", "GivenAsOf", "given_as_of", "parse_as_of", "read_cut"]

VERSION: Final = 1

MOST_BYTES: Final = 256 << 20
"""Size of a file of a cut, with room for a million partitions."""


@dataclass(frozen=True, slots=True)
class CutEntry:
    """Offsets that part a partition at a time."""

    topic: str
    topic_id: str | None
    """Topic id as Kafka prints it; None of a topic without one."""
    partition: Natural
    offset: Natural
    """First offset that was appended at or after the time."""
    committed_offset: Natural
    """Offset before which all transactions are whole, here and in the other partitions."""
    exact: bool
    why: str | None
    """Reason why other offsets may be right; None if they are exact."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A time, and the offsets that part each partition there."""

    cluster_id: str | None
    """Cluster id; None of files without one."""
    at_ms: int
    made_ms: int
    """When the cut was made, in milliseconds."""
    partitions: tuple[CutEntry, ...]

    def to_bytes(self) -> bytes:
        """Encode the cut as the content of its file: an object, with a line for each partition."""
        head = {"version": VERSION, "cluster_id": self.cluster_id}
        head |= {"at": format_moment(self.at_ms), "at_ms": self.at_ms, "made_ms": self.made_ms}
        lines = ",\n".join(f"  {json.dumps(_members(entry))}" for entry in self.partitions)
        return f'{json.dumps(head)[:-1]}, "partitions": [\n{lines}\n]}}\n'.encode()

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> "Cut":
        """Decode the content of a file.

        Raises:
            Misconfigured: it is no cut, or of an unknown version.
        """
        try:
            document = from_json(content)
            if not isinstance(document, dict):
                raise ValueError("it is no object")
            version = document.pop("version", None)
            if type(version) is not int or version != VERSION:
                raise ValueError(
                    f"its version is {version!r:.40}, and this horolog reads {VERSION}"
                )
            document.pop("at", None)
            listed = document.get("partitions")
            if not isinstance(listed, list):
                raise ValueError("it has no list of partitions")
            cut = read_as(cls, document | {"partitions": []})
            cut = replace(cut, partitions=tuple(map(_entry, listed)))
            cut.by_partition()
        except ValueError as error:
            raise Misconfigured(f"{name} is no cut: {error!s:.200}") from None
        return cut

    def by_partition(self) -> dict[TopicPartition, CutEntry]:
        """Return the entries by partition.

        Raises:
            ValueError: there are two of one partition, or one cannot be.
        """
        found: dict[TopicPartition, CutEntry] = {}
        for entry in self.partitions:
            key = TopicPartition(entry.topic, entry.partition)
            if found.setdefault(key, entry) is not entry:
                raise ValueError(f"it has {key} twice")
            if entry.committed_offset > entry.offset:
                raise ValueError(f"the committed offset of {key} is behind its offset")
            if entry.exact is bool(entry.why):
                raise ValueError(f"{key} has to be exact, or to say why it is not")
        return found


def _entry(document: Any) -> CutEntry:
    try:
        return read_as(CutEntry, document)
    except ValueError as error:
        raise ValueError(f"its partition {document!r:.100}: {error}") from None


AsOf: TypeAlias = int | Cut
"""An append time in milliseconds, or a cut."""

GivenAsOf: TypeAlias = AsOf | str | os.PathLike[str]
"""The same, or the path of a cut's file."""


def parse_as_of(text: str, moment: Callable[[str], int]) -> AsOf:
    """Parse an append time, or read the file of a cut: a path, or a name that ends with `.json`.

    Args:
        moment: parses a time, to milliseconds.

    Raises:
        Misconfigured: the file cannot be read, or is no cut.
    """
    is_file = text.endswith(".json") or "/" in text or os.sep in text
    return read_cut(text) if is_file else moment(text)


def given_as_of(given: GivenAsOf) -> AsOf:
    """Return the time or the cut that a caller gives; the file of a cut is read.

    Raises:
        Misconfigured: the file cannot be read, or is no cut; the time is beyond 64 bits.
    """
    if isinstance(given, Cut):
        return given
    if isinstance(given, os.PathLike):
        return read_cut(os.fspath(given))
    if isinstance(given, str):
        return parse_as_of(given, _moment)
    if type(given) is not int or not -(1 << 63) <= given < 1 << 63:
        raise Misconfigured(f"as_of is {given!r:.80}: give milliseconds, a Cut, or its path")
    return given


def _moment(text: str) -> int:
    try:
        return moment_ms(text, rounds_up=True)
    except ValueError as error:
        raise Misconfigured(f"as_of: {error}") from None


def _members(entry: CutEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in CutEntry.__dataclass_fields__}


def read_cut(path: str) -> Cut:
    """Read the file of a cut.

    Raises:
        Misconfigured: it cannot be read, or is no cut.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise Misconfigured(f"{path} is larger than a cut can be")
    return Cut.from_bytes(content, path)
