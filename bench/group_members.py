"""Clients of bench/clients.py that are many members of consumer groups, over few connections.

A member does what clients do: it sends a heartbeat once an interval, and at once when it was told
other partitions, with those that it has now. It fetches nothing.
"""

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from bench import raw
from bench.harness import Watch
from bench.sides import cpu_s

CONNECTIONS = 16
UNDER_WAY = 50  # heartbeats of one connection
LOADING = 14, 15, 16
UNKNOWN_MEMBER = 25
PATIENCE_S = 60.0
PAUSE_S = 1.5  # longer than a group waits between two assignments


@dataclass
class Member:
    """A member as it knows itself."""

    group: str
    name: str
    topics: Sequence[str]
    epoch: int = 0
    owned: dict[bytes, list[int]] = field(default_factory=dict)
    due: float = 0.0
    tells: bool = False
    """The next heartbeat says what it owns."""
    fenced: int = 0

    def request(self) -> bytes:
        """Its next heartbeat."""
        if self.epoch == 0:
            return raw.joining_request(self.group, self.name, self.topics)
        return raw.heartbeat_request(
            self.group, self.name, self.epoch, self.owned if self.tells else None
        )

    def take(self, answer: memoryview, next_at: float) -> None:
        """Take the answer to it; one that came too late joins again, as clients do."""
        try:
            self.epoch, partitions = raw.beaten(answer)
        except raw.Refused as refused:
            if refused.code in LOADING and self.epoch == 0:
                self.due = time.perf_counter() + 0.05
                return
            if refused.code != UNKNOWN_MEMBER:
                raise
            self.epoch, self.owned, self.due, self.tells = 0, {}, 0.0, False
            self.fenced += 1
            return
        self.due, self.tells = next_at, False
        if partitions is not None and partitions != self.owned:
            self.owned, self.tells, self.due = partitions, True, 0.0


class Members:
    """Members whose heartbeats are sent in rounds."""

    def __init__(self, bootstrap: str, interval_s: float) -> None:
        self._stack = contextlib.ExitStack()
        self._connections = [
            self._stack.enter_context(raw.Connection(bootstrap, PATIENCE_S))
            for _ in range(CONNECTIONS)
        ]
        self._interval_s = interval_s
        self.all: list[Member] = []
        self.heartbeats = 0

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def beat(self, members: Iterable[Member]) -> None:
        """Send one heartbeat of each, and take the answers."""
        shares: list[list[Member]] = [[] for _ in self._connections]
        for number, member in enumerate(members):
            shares[number % CONNECTIONS].append(member)
        while any(shares):
            for connection, share in zip(self._connections, shares, strict=True):
                for member in share[:UNDER_WAY]:
                    connection.send(raw.CONSUMER_HEARTBEAT, member.request())
            for connection, share in zip(self._connections, shares, strict=True):
                for member in share[:UNDER_WAY]:
                    member.take(connection.receive(), time.perf_counter() + self._interval_s)
                    self.heartbeats += 1
                del share[:UNDER_WAY]

    def beat_due(self) -> None:
        """Send the heartbeats whose time has come; wait for a moment if there are none."""
        now = time.perf_counter()
        due = [member for member in self.all if member.due <= now]
        if due:
            self.beat(due)
        else:
            time.sleep(0.001)

    def rest(self, seconds: float) -> None:
        """Stay for this long."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.beat_due()

    def settle(self, above: int, partitions: int) -> float:
        """Stay until all are at one epoch above this and own so many; the seconds it took."""
        began = time.perf_counter()
        while not self.is_stable(above, partitions):
            assert time.perf_counter() < began + PATIENCE_S, "the group does not become stable"
            self.beat_due()
        return time.perf_counter() - began

    def is_stable(self, above: int, partitions: int) -> bool:
        """Whether all are at one epoch above this, and together own so many partitions."""
        first = self.all[0].epoch
        if first <= above or any(each.epoch != first or each.tells for each in self.all):
            return False
        return sum(map(len, (of for each in self.all for of in each.owned.values()))) == partitions

    def leave(self, members: Collection[Member]) -> None:
        """Let them leave."""
        for member in members:
            self.all.remove(member)
            member.epoch, member.tells = -1, False
        self.beat(members)


@contextlib.contextmanager
def _topic_being_made(bootstrap: str, name: str, partitions: int) -> Iterator[None]:
    """A topic that another thread asks for; it is deleted in the end."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.list_topics(timeout=PATIENCE_S)  # connected
    made = admin.create_topics([NewTopic(name, partitions, 1)])
    yield
    made[name].result()
    admin.delete_topics([name])[name].result()


def rebalances(
    bootstrap: str,
    topics: Sequence[str],
    partitions: int,
    members: int,
    more: int,
    interval_s: float,
) -> dict[str, float]:
    """Seconds until a new group is stable: after a join, a kill, a leave and a new topic.

    Args:
        partitions: of all topics together.
        more: partitions of the new topic.
    """
    group = f"group-{uuid4()}"
    new = f"new-{group}"
    numbers: dict[str, float] = {}
    watch = Watch()
    with Members(bootstrap, interval_s) as them:

        def member(number: int) -> Member:
            return Member(group, f"{group}-{number}", [*topics, new])

        them.all = [member(number) for number in range(members)]

        def after(what: str, owned: int = partitions) -> None:
            numbers[what] = them.settle(epoch, owned)
            them.rest(PAUSE_S)

        them.rest(PAUSE_S)
        them.settle(2, partitions)
        them.rest(PAUSE_S)
        epoch = them.all[-1].epoch
        them.all.append(member(members))
        after("join, s")
        epoch = them.all[-1].epoch
        them.all.pop(0)
        after("kill, s")
        epoch = them.all[-1].epoch
        them.leave(them.all[:1])
        after("leave, s")
        epoch = them.all[-1].epoch
        with _topic_being_made(bootstrap, new, more):
            after("new topic, s", partitions + more)
        numbers["heartbeats"] = them.heartbeats
        numbers["fenced"] = sum(each.fenced for each in them.all)
        numbers |= watch.numbers()
        for each in list(them.all):
            them.leave([each])
    return numbers


def keep_alives(
    bootstrap: str,
    pid: int,
    topics: Sequence[str],
    members: int,
    groups: int,
    rounds: int,
    rate: float,
) -> dict[str, float]:
    """Heartbeats of members to whom nothing happens: at a rate, or as fast as they are answered.

    They join before; their groups stay for the next run, in which they join again.

    Args:
        pid: process of the broker.
        rate: heartbeats a second; 0: without a pause.
    """
    with Members(bootstrap, 0.2) as them:
        for number in range(members):
            group = f"kept-{groups}-{number % groups}"
            them.all.append(Member(group, f"member-{number}", topics))
        them.rest(3 * PAUSE_S)
        while any(each.tells for each in them.all):
            them.beat_due()
        before, watch = cpu_s(pid), Watch()
        parts = 20 if rate else 1
        for part in range(parts * rounds):
            begun = time.perf_counter()
            share = them.all[part % parts :: parts]
            them.beat(share)
            if rate:
                time.sleep(max(0.0, begun + len(share) / rate - time.perf_counter()))
        numbers = watch.numbers()
        used = cpu_s(pid) - before
    beats = members * rounds
    return {
        **numbers,
        "heartbeats": beats,
        "CPU us/heartbeat": 1e6 * used / beats,
        "CPU, % of a core": 100 * used / numbers["seconds"],
    }
