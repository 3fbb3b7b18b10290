"""Members of a consumer group that come, leave and are killed, at a broker that is killed.

After each start the members continue with the ids and epochs that they had. In the end each record
was read, and no partition had two owners at a time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import confluent_kafka
from killed_broker import KilledBroker
from members_said import (
    LOST,
    READ,
    Said,
    SpeakingMember,
    await_shared_out,
    owned_twice,
    python_member,
    tenures,
    times_read,
)
from patience import PATIENCE_S, eventually

from horolog.client import Client
from horolog.clock import SystemClock

TOPICS: Final = ("flow-a", "flow-b")
PARTITIONS: Final = 3
PLACES: Final = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
GROUP: Final = "flowing"
MOST_MEMBERS: Final = 5
NAMES, PATTERN, CLASSIC = "names", "pattern", "classic"
KINDS: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    NAMES: (",".join(TOPICS), {"group_protocol": "consumer"}),
    PATTERN: ("^flow-.*", {"group_protocol": "consumer"}),
    CLASSIC: (
        ",".join(TOPICS),
        {"session_timeout_ms": "10000", "partition_assignment_strategy": "range"},
    ),
}
"""Members: what they subscribe to, and their settings.

Classic ones of librdkafka whose strategy is `cooperative-sticky` put user data into assignments:
no broker converts such a group.
"""
PAUSE_S: Final = 0.01
"""Between two records that are sent."""


class MemberSoak(KilledBroker):
    """One run."""

    SETTINGS: Mapping[str, object] = {
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.session.timeout.ms": 10_000,
        "group.consumer.min.heartbeat.interval.ms": 50,
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.assignment.interval.ms": 0,
        "log.segment.bytes": 1 << 20,
    }

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._numbers = itertools.count()
        self._members: list[SpeakingMember] = []
        self._past: list[tuple[SpeakingMember, int]] = []
        self._sent = 0
        self._stops = threading.Event()
        with Client(self.address) as client:
            client.create_topics(dict.fromkeys(TOPICS, PARTITIONS))
        self._sending = threading.Thread(target=self._send, daemon=True)
        self._sending.start()
        for kind in (NAMES, PATTERN):
            self._join(kind)
        await_shared_out(self._members, PLACES)

    def _chance(self) -> Iterator[str | None]:
        return itertools.repeat(None)

    def _send(self) -> None:
        settings = {"enable.idempotence": True, "reconnect.backoff.max.ms": 200, "log_level": 0}
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, **settings})
        while not self._stops.wait(PAUSE_S):
            topic, partition = PLACES[self._sent % len(PLACES)]
            producer.produce(topic, b"%d" % self._sent, partition=partition)
            producer.poll(0)
            self._sent += 1
        assert producer.flush(PATIENCE_S) == 0

    # --- members ------------------------------------------------------------------------

    def _join(self, kind: str | None = None) -> None:
        number = next(self._numbers)
        said = self.directory / f"member-{number}.said"
        kind = kind or self.rng.choice([*KINDS])
        subscription, settings = KINDS[kind]
        static = {"group_instance_id": f"i-{number}"} if self.rng.random() < 0.3 else {}
        more = {**settings, **static}
        self._members.append(
            python_member("confluent-kafka", self.address, GROUP, subscription, said, **more)
        )
        self.counts[f"joins by {kind}"] += 1

    def _end(self, *, killed: bool) -> None:
        member = self._members.pop(self.rng.randrange(len(self._members)))
        if killed:
            member.kill()
        else:
            member.close()
        self._past.append((member, SystemClock().now_ms()))
        self.counts["members killed" if killed else "members closed"] += 1

    def _change(self) -> None:
        """Let a member join, leave or die."""
        few, many = len(self._members) < 2, len(self._members) >= MOST_MEMBERS
        if few or (not many and self.rng.random() < 0.5):
            self._join()
        else:
            self._end(killed=self.rng.random() < 0.5)

    # --- rounds -------------------------------------------------------------------------

    def _one_round(self) -> None:
        """Change the group, and kill the broker in the midst of what follows."""
        for _ in range(self.rng.randrange(1, 4)):
            self._change()
            time.sleep(self.rng.random() * 0.7)
        self._take_down()

    def _has_come_up(self) -> None:
        if self.counts["kills"] % 3 == 1:
            self._go_on_as_they_were()

    def _go_on_as_they_were(self) -> None:
        """Kill the broker once no rebalance is under way: nobody joins again."""
        await_shared_out(self._members, PLACES)
        assert eventually(lambda: self._described()[0] == "Stable")
        before = self._described(), self._tenures()
        self._take_down()
        self._start_and_wait()
        read = self._count_read()
        assert eventually(lambda: self._count_read() > read + len(PLACES))
        assert (self._described(), self._tenures()) == before
        self.counts["kills of a stable group"] += 1

    def _described(self) -> tuple[str, dict[str, tuple[Any, Any]]]:
        with Client(self.address) as client:
            found = client.groups.describe([GROUP])[GROUP]
        members = {it.member_id: (it.epoch, it.assigned) for it in found.members or ()}
        return found.state, members

    def _tenures(self) -> int:
        """How often partitions were given, given up or lost."""
        return sum(line.what != READ for line in self._said_by_all())

    def _count_read(self) -> int:
        return sum(line.what == READ for line in self._said_by_all())

    def _said_by_all(self) -> Iterator[Said]:
        for member in [*self._members, *(member for member, _ in self._past)]:
            yield from member.all_said()

    # --- the end ------------------------------------------------------------------------

    def finish(self) -> None:
        await_shared_out(self._members, PLACES)
        self._stops.set()
        self._sending.join()
        with Client(self.address) as client:
            found = client.list_offsets(dict.fromkeys(PLACES, -1))
        ends = {at: end.offset for at, end in found.items() if end is not None}
        assert sum(ends.values()) == self._sent
        every = {(at, offset) for at, end in ends.items() for offset in range(end)}
        assert eventually(lambda: every == set(times_read(self._said_by_all()))), sorted(
            every - set(times_read(self._said_by_all()))
        )[:20]
        while self._members:
            self._end(killed=False)
        self._look_at_owners()
        read = times_read(self._said_by_all())
        self.counts["records"] = len(every)
        self.counts["records read again"] = read.total() - len(every)

    def _look_at_owners(self) -> None:
        lives = [
            (number, member.all_said(), ended_ms)
            for number, (member, ended_ms) in enumerate(self._past)
        ]
        self.counts["partitions lost"] = sum(
            line.what == LOST for _, lines, _ in lives for line in lines
        )
        assert owned_twice(tenures(lives)) == []

    def close(self) -> None:
        self._stops.set()
        for member in self._members:
            member.kill()
        super().close()
