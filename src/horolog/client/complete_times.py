"""Times up to which partitions are complete: no earlier record will be appended (horolog only)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from horolog.client.client import Client
from horolog.errors import Misconfigured
from horolog.offsets import TopicPartition
from horolog.wire.questions import TIMES, AskTimes, PartitionTimes, Withdrawn

LACKING: Final = (
    "{} is not complete up to any time: Apache Kafka's brokers cannot know it, and only horolog "
    "bounds what is still to come"
)
SETTING: Final = "message.timestamp.before.max.ms"
_WHY: Final[Mapping[Withdrawn | None, str]] = {
    Withdrawn.NO_BOUND: f"{SETTING} is not set",
    Withdrawn.BOUND_RAISED: f"{SETTING} was raised, and what was too early before may come",
    Withdrawn.RESET: "append times were reset, and what was too early before may come",
    Withdrawn.FOLLOWED: "records come from another cluster, or have come since",
    Withdrawn.ADOPTED: "it was found on disk; a setting makes it this broker's",
    Withdrawn.OPEN_TRANSACTION: "the times of records behind an open transaction are unknown",
    Withdrawn.NOT_WRITTEN: "the disk refuses the clock of append times",
}


class CompleteUntil(NamedTuple):
    """Time up to which all of some partitions are complete."""

    ms: int | None
    """No record with an earlier timestamp will come to any of them; None if that is unknown."""
    partition: int | None = None
    """The partition that has it, or that is the reason why it is unknown."""
    withdrawn: Withdrawn | None = None
    """Reason why it is unknown; None, too, for a partition without a leader."""

    @property
    def is_never(self) -> bool:
        """True if it stays unknown until the topic is given a bound."""
        return self.withdrawn in (Withdrawn.NO_BOUND, Withdrawn.ADOPTED)

    def why(self, topic: str) -> str:
        """Return the reason in words."""
        reason = _WHY.get(self.withdrawn, "it is offline")
        return f"{topic}-{self.partition} is not complete up to any time: {reason}"


def least(times: Mapping[int, PartitionTimes | None], *, committed: bool) -> CompleteUntil:
    """Return the least time of several partitions, None for one without a leader.

    Args:
        committed: for readers of committed records.
    """
    found = CompleteUntil(None)
    for number, its in sorted(times.items()):
        if its is None:
            return CompleteUntil(None, number)
        ms = its.committed_complete_until_ms if committed else its.complete_until_ms
        if ms is None:
            return CompleteUntil(None, number, its.complete_withdrawn)
        if found.ms is None or ms < found.ms:
            found = CompleteUntil(ms, number)
    return found


def ask_complete(
    client: Client, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionTimes]:
    """Ask up to which time partitions are complete.

    Raises:
        Misconfigured: a leader is an Apache Kafka broker.
        RequestRefused: a partition does not exist, or a broker refuses.
        NoAnswer: no broker answers.
    """
    asks = {key: AskTimes(key[1], sums=False) for key in partitions}
    found = dict[TopicPartition, PartitionTimes]()
    for key, times in client.ask.many(TIMES, asks).items():
        if times is None:
            raise Misconfigured(LACKING.format(f"{key[0]}-{key[1]}"))
        found[key] = times
    return found
