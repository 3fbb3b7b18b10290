"""Cuts: where all partitions of a log part at a time, so that they can be read as of that time.

A cut has two offsets for each partition. Before `offset` is what was appended before the time.
Before `committed_offset` are whole transactions: those whose markers were appended before the
time, in every partition that the cut has. An open transaction in one partition may therefore lower
the offset of another.

A cut is kept as a file of JSON (docs/as-of.md), which readers take in the place of a time.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from horolog.client import AskCut, PartitionCut
from horolog.clock import moment_ms
from horolog.errors import Misconfigured
from horolog.json_text import Natural, from_json, read_as
from horolog.offsets import Inexact, TransactionStart
from horolog.storage.names import TopicPartition
from horolog.times import format_moment

__all__ = [
    "AsOf",
    "Asked",
    "Cut",
    "CutEntry",
    "CutSource",
    "GivenAsOf",
    "cut_all",
    "cut_of",
    "ends_as_of",
    "entries_as_of",
    "entries_in",
    "given_as_of",
    "inexact",
    "read_cut",
    "up_to_cut",
]

VERSION: Final = 1
MOST_BYTES: Final = 256 << 20
"""Size of a file of a cut, with room for a million partitions."""

_EVER: Final = -(1 << 63)
_MOST_PRODUCERS: Final = 180  # that one question names, each by two numbers of 20 digits
_AT_A_TIME: Final = 200  # partitions, after which progress is shown
_SENTENCES: Final = {
    Inexact.FUTURE: "the time is in the future of the log, so that more may be appended before it",
    Inexact.FOLLOWING: "it follows a source, of which more may come that was appended before",
    Inexact.UNKNOWN: "append times around it are unknown, or only seen by a follower",
    Inexact.RESET: "append times go back around it, by a reset or with another broker's clock",
    Inexact.AHEAD: "append times around it were ahead of the broker's clock",
    Inexact.DELETED: "the records around it are deleted",
    Inexact.COMPACTED: "records around it are compacted",
}

Asked: TypeAlias = Callable[
    [Mapping[TopicPartition, AskCut]], Mapping[TopicPartition, PartitionCut | str]
]
"""Cuts partitions; gives a sentence about one that cannot be cut."""

Advance: TypeAlias = Callable[[int, int], None]
"""Callback with how many partitions are cut, and how many there are."""


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


class CutSource(Protocol):
    """A log, at brokers or in files, that can be cut."""

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Topic ids by name, of topics that have one."""
        ...

    def partitions(self) -> Collection[TopicPartition]:
        """Return the partitions that are chosen, as they are now."""
        ...

    def cluster_id(self) -> str | None:
        """Return the cluster id; None if it is unknown."""
        ...

    def cut(
        self, asks: Mapping[TopicPartition, AskCut]
    ) -> Mapping[TopicPartition, PartitionCut | str]:
        """Cut partitions at append times; a sentence about one that cannot be cut."""
        ...


def no_progress(done: int, total: int) -> None:
    """Show nothing."""


def cut_all(log: CutSource, at_ms: int, made_ms: int, advance: Advance = no_progress) -> Cut:
    """Cut all chosen partitions of a log at a time, also those that are added meanwhile.

    Raises:
        Misconfigured: a topic that is named does not exist.
        RequestRefused, NoAnswer, StorageFailed: as `cut_of`.
    """
    listed = _listed(log)
    while True:
        cut = cut_of(log, at_ms, listed, made_ms, advance)
        before, listed = listed, _listed(log)
        if listed == before:
            return cut


def _listed(log: CutSource) -> dict[TopicPartition, str | None]:
    """Return the partitions of a log with the ids of their topics."""
    return {key: log.topic_ids.get(key.topic) for key in log.partitions()}


def cut_of(
    log: CutSource,
    at_ms: int,
    partitions: Iterable[TopicPartition],
    made_ms: int,
    advance: Advance = no_progress,
) -> Cut:
    """Cut partitions of a log at a time.

    Args:
        made_ms: the present time, in milliseconds.

    Raises:
        RequestRefused: the brokers keep no append times.
        NoAnswer: a broker does not answer.
        StorageFailed: the disk refused.
    """
    entries = [
        CutEntry(
            key.topic,
            log.topic_ids.get(key.topic),
            key.partition,
            *its[:2],
            its.why is None,
            its.why,
        )
        for key, its in _settled(log.cut, at_ms, partitions, advance).items()
    ]
    return Cut(log.cluster_id(), at_ms, made_ms, tuple(entries))


def ends_as_of(
    log: CutSource, as_of: AsOf, partitions: Collection[TopicPartition], *, committed: bool
) -> dict[TopicPartition, int]:
    """Return where a read of partitions as of a time ends.

    Args:
        committed: whether records of committed transactions are read.

    Raises:
        Misconfigured: the cut is of another cluster or topic, or not exact; or records before it
            were compacted, or all deleted, since it was made.
        RequestRefused, NoAnswer, StorageFailed: as `cut_of`.
    """
    found = {}
    for key, entry in entries_as_of(log, as_of, partitions).items():
        if entry.why is not None:
            raise Misconfigured(inexact(as_of, key, entry.why))
        found[key] = entry.committed_offset if committed else entry.offset
    return found


def entries_as_of(
    log: CutSource, as_of: AsOf, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, CutEntry]:
    """Return where partitions part at a time, exactly or not.

    A cut that was made before is not exact any more where records in front of it were compacted
    since, or all deleted. A partition that it does not have must have been added since.

    Raises:
        Misconfigured: the cut is of another cluster or topic.
        RequestRefused, NoAnswer, StorageFailed: as `cut_of`.
    """
    if not isinstance(as_of, Cut):
        its = cut_of(log, as_of, partitions, 0).by_partition()
        return {key: its[key] for key in partitions}
    its, given = entries_in(as_of, log, partitions), as_of.by_partition()
    for key, answer in log.cut({key: AskCut(key.partition, as_of.at_ms) for key in its}).items():
        entry, why = its[key], None
        if isinstance(answer, str):
            why = answer
        elif _passed(answer, entry.offset) or _passed(answer, entry.committed_offset):
            why = _reason(Inexact.COMPACTED)
        elif answer.why is Inexact.DELETED:
            why = _reason(answer.why) if entry.offset else None
        elif key not in given and (answer.offset or answer.why):
            why = _reason(answer.why) if answer.why else "the cut has not the partition"
        if why is not None:
            its[key] = replace(entry, exact=False, why=why)
    return its


def inexact(as_of: AsOf, partition: TopicPartition, why: str) -> str:
    """Return the sentence that refuses a cut that is not exact."""
    return f"{partition} cannot be read as of {format_moment(_time_of(as_of))}: {why}"


def _passed(answer: PartitionCut, offset: int) -> bool:
    """Return True if compaction may have removed records for later ones than those of a cut."""
    return (answer.doubts.cleaner_point or 0) > offset > 0


def _time_of(as_of: AsOf) -> int:
    return as_of.at_ms if isinstance(as_of, Cut) else as_of


def _reason(why: Inexact) -> str:
    return f"{why}: {_SENTENCES[why]}"


def up_to_cut(
    cut_ends: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    """Return where a read ends: at a cut that was made before, if there is one.

    Raises:
        Misconfigured: the log ends before the cut.
    """
    for key, end in cut_ends.items():
        if end > latest[key]:
            raise Misconfigured(
                f"the cut is at offset {end} of {key}, which ends at {latest[key]}: it is of "
                "another log, or records were lost since"
            )
    if not cut_ends:
        return latest
    return {key: max(end, earliest[key]) for key, end in cut_ends.items()}


def entries_in(
    cut: Cut, log: CutSource, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, CutEntry]:
    """Return the entries of partitions of a log; one that was added since is cut at offset 0.

    Raises:
        Misconfigured: the cut is of another cluster, has not the topic, or it was re-created since.
    """
    cluster_id = log.cluster_id()
    if None not in (cut.cluster_id, cluster_id) and cut.cluster_id != cluster_id:
        raise Misconfigured(f"the cut is of another cluster: {cut.cluster_id}, not {cluster_id}")
    its = cut.by_partition()
    counts: dict[str, int] = {}
    for topic, number in its:
        counts[topic] = max(number + 1, counts.get(topic, 0))
    found = {}
    for key in partitions:
        topic_id = log.topic_ids.get(key.topic)
        entry = its.get(key)
        if entry is None and key.partition >= counts.get(key.topic, key.partition + 1):
            entry = CutEntry(key.topic, topic_id, key.partition, 0, 0, True, None)
        if entry is None:
            raise Misconfigured(f"the cut has no {key}: make one that has it")
        if None not in (entry.topic_id, topic_id) and entry.topic_id != topic_id:
            raise Misconfigured(
                f"{key.topic} was re-created since the cut: it had id {entry.topic_id}, and has "
                f"{topic_id}"
            )
        found[key] = entry
    return found


class Settled(NamedTuple):
    """Offsets of a partition, and why they are not exact; None if they are."""

    offset: int
    committed_offset: int
    why: str | None


def _settled(
    asked: Asked, at_ms: int, partitions: Iterable[TopicPartition], advance: Advance
) -> dict[TopicPartition, Settled]:
    """Cut partitions at a time, so that no transaction is cut in two.

    Args:
        asked: cuts each partition alone.
    """
    whys: dict[TopicPartition, str | None] = {}
    offsets: dict[TopicPartition, int] = {}
    committed: dict[TopicPartition, int] = {}
    answers: dict[TopicPartition, PartitionCut | str] = {}
    keys = list(partitions)
    for first in range(0, len(keys), _AT_A_TIME):
        some = keys[first : first + _AT_A_TIME]
        answers |= asked({key: AskCut(key.partition, at_ms) for key in some})
        advance(len(answers), len(keys))
    for key, answer in answers.items():
        if isinstance(answer, str):
            whys[key], offsets[key], committed[key] = answer, 0, 0
            continue
        whys[key] = None if answer.why is None else _reason(answer.why)
        offsets[key] = answer.offset
        committed[key] = min([answer.offset, *(start.offset for start in answer.transactions)])
    _settle(_Questions(asked, at_ms, whys), offsets, committed)
    for key, answer in answers.items():
        if not isinstance(answer, str) and _passed(answer, committed[key]):
            whys[key] = whys[key] or _reason(Inexact.COMPACTED)
    return {
        key: Settled(offset, committed[key], whys[key]) for key, offset in sorted(offsets.items())
    }


class _Questions(NamedTuple):
    """Asks for transactions of partitions; a sentence about one becomes its reason."""

    asked: Asked
    at_ms: int
    whys: dict[TopicPartition, str | None]

    def doubt(self, key: TopicPartition) -> None:
        """Note that transactions may be left out of a partition that ended before the time."""
        self.whys[key] = self.whys[key] or _reason(Inexact.UNKNOWN)

    def ask(
        self, asks: Mapping[TopicPartition, AskCut]
    ) -> dict[TopicPartition, tuple[TransactionStart, ...]]:
        found = {}
        for key, answer in self.asked(asks).items() if asks else ():
            if isinstance(answer, str):
                self.whys[key] = answer
            else:
                found[key] = answer.transactions
        return found


def _settle(
    questions: _Questions,
    offsets: Mapping[TopicPartition, int],
    committed: dict[TopicPartition, int],
) -> None:
    """Lower committed offsets until a transaction left out of one partition is in none.

    Transactions of one producer follow one another: once one is left out, all are whose markers
    were appended at or after its first record. A marker of the same millisecond may be of the
    transaction before, and counts, too.
    """
    at_ms = questions.at_ms
    left_out: dict[int, int] = {}
    told: dict[TopicPartition, dict[int, int]] = {key: {} for key in offsets}
    lowered = {key for key, offset in offsets.items() if committed[key] < offset}
    while lowered:
        asks = {key: AskCut(key.partition, at_ms, committed[key]) for key in lowered}
        lowered = set()
        for key, starts in questions.ask(asks).items():
            for producer_id, offset, append_ms in starts:
                since_ms = _EVER if append_ms is None else append_ms
                left_out[producer_id] = min(since_ms, left_out.get(producer_id, since_ms))
                if offset < committed[key]:  # it is open at an offset that was lowered
                    committed[key] = offset
                    lowered.add(key)
        while asks := _untold(told, left_out, at_ms):
            for key, starts in questions.ask(asks).items():
                before = [start for start in starts if start.offset < committed[key]]
                if before:
                    committed[key] = min(start.offset for start in before)
                    lowered.add(key)
                if any(left_out.get(start.producer_id) == _EVER for start in before):
                    questions.doubt(key)


def _untold(
    told: Mapping[TopicPartition, dict[int, int]], left_out: Mapping[int, int], at_ms: int
) -> dict[TopicPartition, AskCut]:
    """Return questions about producers whose time no partition was asked for yet."""
    asks = {}
    for key, its in told.items():
        news = [(id_, ms) for id_, ms in left_out.items() if its.get(id_) != ms]
        if news:
            its.update(news[:_MOST_PRODUCERS])
            asks[key] = AskCut(key.partition, at_ms, since=dict(news[:_MOST_PRODUCERS]))
    return asks
