"""Cutting partitions at a time so that no transaction is cut in two."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from horolog.client import AskCut, PartitionCut
from horolog.offsets import Inexact, TransactionStart
from horolog.storage.names import TopicPartition

__all__ = ["Advance", "Asked", "no_progress", "passed_by_cleaner", "reason", "settled"]

Asked: TypeAlias = Callable[
    [Mapping[TopicPartition, AskCut]], Mapping[TopicPartition, PartitionCut | str]
]
"""Cuts partitions; gives a sentence about one that cannot be cut."""

Advance: TypeAlias = Callable[[int, int], None]
"""Callback with how many partitions are cut, and how many there are."""

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


def no_progress(done: int, total: int) -> None:
    """Show nothing."""


class Settled(NamedTuple):
    """Offsets of a partition, and why they are not exact; None if they are."""

    offset: int
    committed_offset: int
    why: str | None


def settled(
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
        whys[key] = None if answer.why is None else reason(answer.why)
        offsets[key] = answer.offset
        committed[key] = min([answer.offset, *(start.offset for start in answer.transactions)])
    _settle(_Questions(asked, at_ms, whys), offsets, committed)
    for key, answer in answers.items():
        if not isinstance(answer, str) and passed_by_cleaner(answer, committed[key]):
            whys[key] = whys[key] or reason(Inexact.COMPACTED)
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
        self.whys[key] = self.whys[key] or reason(Inexact.UNKNOWN)

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


def reason(why: Inexact) -> str:
    """Return a reason with the sentence about it."""
    return f"{why}: {_SENTENCES[why]}"


def passed_by_cleaner(answer: PartitionCut, offset: int) -> bool:
    """Return True if compaction may have removed records for later ones than those of a cut."""
    return (answer.doubts.cleaner_point or 0) > offset > 0
