"""What clients of a cluster were told, and what has to be true of it in the end.

Writers number their records for each partition; a value says who wrote it, as which one and in
which transaction. Nothing here waits or does I/O: threads of clients tell, a test checks.
"""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

Where = tuple[str, int]


class Written(NamedTuple):
    """A record by its value."""

    writer: str
    number: int
    transaction: str = ""

    @property
    def value(self) -> bytes:
        return f"{self.writer}|{self.number}|{self.transaction}".encode()

    @classmethod
    def of(cls, value: bytes) -> "Written":
        writer, number, transaction = value.split(b"|")
        return cls(writer.decode(), int(number), transaction.decode())


class End(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Stored(NamedTuple):
    """A record as it was read."""

    offset: int
    timestamp: int
    written: Written


class ClusterHistory:
    """Grows by the words of many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: dict[Where, dict[int, Written]] = defaultdict(dict)
        self.somewhere: dict[Where, set[Written]] = defaultdict(set)
        """Acknowledged without an offset: librdkafka does so for what a later answer implies."""
        self.times: dict[Where, dict[int, int]] = defaultdict(dict)
        """Timestamps of acknowledged records, by offset."""
        self.seen: dict[Where, dict[int, Written]] = defaultdict(dict)
        self.successes: dict[str, float] = {}
        """When a client was told of a success last, by its name, on the monotonic clock."""
        self.ends: dict[str, End] = {}
        """How transactions ended, by what their producers were told."""
        self.parts: dict[str, list[tuple[Where, Written]]] = defaultdict(list)
        """Records of transactions that were sent."""
        self.wrong: list[str] = []
        self.once: set[str] = set()
        """Writers whose records are there at most once, in order, as those of transactions are."""

    @property
    def count(self) -> int:
        """Records acknowledged so far."""
        with self._lock:
            return sum(map(len, self.acknowledged.values()))

    def complain(self, what: str) -> None:
        """Note what must not be."""
        with self._lock:
            self.wrong.append(what)

    def acknowledge(
        self, where: Where, offset: int | None, written: Written, timestamp: int | None
    ) -> None:
        """A writer was told that its record is there; at which offset and time is not always."""
        with self._lock:
            self._note_success(written.writer)
            if offset is None or offset < 0:
                self.somewhere[where].add(written)
                return
            earlier = self.acknowledged[where].setdefault(offset, written)
            if timestamp is not None:
                self.times[where][offset] = timestamp
            if earlier != written:
                self.wrong.append(f"{where} {offset} was acknowledged as {earlier} and {written}")

    def see(self, where: Where, offset: int, written: Written) -> None:
        """A reader got a record, which then stays what it is."""
        with self._lock:
            earlier = self.seen[where].setdefault(offset, written)
            if earlier != written:
                self.wrong.append(f"{where} {offset} was {earlier} to one and {written} to another")

    def send(self, where: Where, written: Written) -> None:
        """A transaction sends a record."""
        with self._lock:
            self.parts[written.transaction].append((where, written))

    def end(self, transaction: str, how: End) -> None:
        """A producer was told how its transaction ended."""
        with self._lock:
            self.ends[transaction] = how
            if how is End.COMMITTED:
                self._note_success(transaction)

    def _note_success(self, writer: str) -> None:
        """Of the client `once-a` that writes as `once-a.3`."""
        self.successes[writer.partition(".")[0]] = time.monotonic()

    def sample(self, at: float) -> tuple[Where, int, int] | None:
        """An acknowledged record: its partition, offset and timestamp; `at` from 0 to 1."""
        with self._lock:
            places = sorted(self.times)
            if not places:
                return None
            where = places[int(at * len(places)) % len(places)]
            offsets = list(self.times[where])
            offset = offsets[int(at * 7919 * len(offsets)) % len(offsets)]
            return where, offset, self.times[where][offset]

    # The end.

    def problems(
        self,
        uncommitted: Mapping[Where, Sequence[Stored]],
        committed: Mapping[Where, Sequence[Stored]],
        epochs: Mapping[Where, Mapping[int, int]] | None = None,
    ) -> list[str]:
        """What is wrong, by all that is readable in the end on each level of isolation.

        Args:
            epochs: of producers, by the offsets of their records. librdkafka raises its own after
                an error of any partition, and then sends again what is there but was not
                acknowledged (its issue 4953). Without raising it, it gives the sequence number of
                an aborted record that is there to another one, which every broker acknowledges as
                a repeat. No broker has lost a record if the numbers around it have no gap, which
                the log shows.
        """
        found = list(self.wrong)
        for where, stored in uncommitted.items():
            found += self._problems_of(where, stored, (epochs or {}).get(where, {}))
        for where in sorted(self.acknowledged.keys() | self.somewhere.keys()):
            if where not in uncommitted:
                found.append(f"{where} is gone")
        found += self._problems_of_transactions(committed, uncommitted, epochs or {})
        return found

    def _problems_of(
        self, where: Where, stored: Sequence[Stored], epochs: Mapping[int, int]
    ) -> Iterable[str]:
        by_offset = {it.offset: it.written for it in stored}
        for told, what in ((self.acknowledged, "acknowledged"), (self.seen, "read")):
            for offset, written in told[where].items():
                if by_offset.get(offset) != written:
                    there = by_offset.get(offset, "nothing")
                    yield f"{where} {offset}: {written} was {what}, there is {there}"
        for written in self.somewhere[where] - set(by_offset.values()):
            yield f"{where}: {written} was acknowledged without an offset, and is nowhere"
        last: dict[str, int] = {}
        places: dict[Written, int] = {}
        for it in stored:
            writer, number, _ = it.written
            if writer in self.once or it.written.transaction:
                earlier = places.setdefault(it.written, it.offset)
                is_sent_anew = earlier not in self.acknowledged[where] and (
                    epochs.get(earlier, -1) < epochs.get(it.offset, -1)
                )
                if number <= last.get(writer, -1) and not is_sent_anew:
                    yield f"{where} {it.offset}: {it.written} after number {last[writer]}"
                last[writer] = number if is_sent_anew else max(number, last.get(writer, -1))

    def _problems_of_transactions(
        self,
        committed: Mapping[Where, Sequence[Stored]],
        uncommitted: Mapping[Where, Sequence[Stored]],
        epochs: Mapping[Where, Mapping[int, int]],
    ) -> Iterable[str]:
        readable: dict[str, list[tuple[Where, Written]]] = defaultdict(list)
        for where, stored in committed.items():
            for it in stored:
                if it.written.transaction:
                    readable[it.written.transaction].append((where, it.written))
        for name, parts in self.parts.items():
            how, there = self.ends.get(name, End.UNKNOWN), sorted(readable.pop(name, []))
            repeats = [
                (where, it)
                for where, it in set(parts) - set(there)
                if _has_number_of_another(it, uncommitted.get(where, ()), epochs.get(where, {}))
            ]
            is_whole = sorted((*there, *repeats)) == sorted(parts)
            if how is End.COMMITTED and not is_whole:
                yield f"{name} was committed: {there} of {parts} is readable"
            elif how is End.ABORTED and there:
                yield f"{name} was aborted: {there} is readable"
            elif how is End.UNKNOWN and there and not is_whole:
                yield f"{name} is readable in parts: {there} of {parts}"
        for name in readable:
            yield f"{name} was never sent"


def _has_number_of_another(
    lost: Written, stored: Sequence[Stored], epochs: Mapping[int, int]
) -> bool:
    """True if its writer went on in the same epoch, so that a lost number would be a gap."""
    client, _, number = lost.writer.partition(".")
    around: dict[bool, int] = {}
    for it in stored:
        other, _, its = it.written.writer.partition(".")
        if other == client and number and its != number:
            is_later = int(its) > int(number)
            if not (is_later and is_later in around):
                around[is_later] = epochs.get(it.offset, -1)
    return len(around) == 2 and around[False] == around[True] >= 0


def problems_of_append_times(stored: Mapping[Where, Sequence[Stored]]) -> list[str]:
    """Where append time goes back."""
    return [
        f"{where} {second.offset}: append time goes back by {first.timestamp - second.timestamp} ms"
        for where, its in stored.items()
        for first, second in itertools.pairwise(its)
        if second.timestamp < first.timestamp
    ]
