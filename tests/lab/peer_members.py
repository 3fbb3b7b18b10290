"""Members of one group with each client that a test may have, and an admin of the Java client."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from members_said import READ, At, SpeakingMember, python_member, times_read
from patience import eventually
from peer_process import PeerProcess, java_command
from tools.peers.kafka import PEERS

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
"""Settings of a broker whose groups are soon stable."""


class Members:
    """Members of one group at one broker, and an admin of the Java client."""

    def __init__(self, address: str, classes: Path, directory: Path, group: str = "g") -> None:
        self.address, self.group = address, group
        self._classes, self._directory = classes, directory
        self._numbers = itertools.count()
        self._stack = ExitStack()
        self.all: list[SpeakingMember] = []

    def _said(self) -> Path:
        return self._directory / f"{self.group}-{next(self._numbers)}.said"

    def add(self, member: SpeakingMember) -> SpeakingMember:
        self._stack.enter_context(member)
        self.all.append(member)
        return member

    def java(self, subscription: str = "t", **settings: str) -> SpeakingMember:
        more = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        given = ("member", self.address, self.group, subscription, *more)
        command = java_command("ConsumerGroups", *given, classes=self._classes)
        return self.add(SpeakingMember(command, self._said()))

    def new_java(self, subscription: str = "t", **settings: str) -> SpeakingMember:
        """One with the consumer protocol."""
        return self.java(subscription, group_protocol="consumer", **settings)

    def go(self, subscription: str = "t", *, flow: int = 2, instance: str = "") -> SpeakingMember:
        given = {"topic": subscription, "group": self.group, "flow": flow, "id": instance}
        command = [str(PEERS / "go" / "client"), "member", self.address, json.dumps(given)]
        return self.add(SpeakingMember(command, self._said()))

    def librdkafka(self, subscription: str = "t", **settings: str) -> SpeakingMember:
        return self.python("confluent-kafka", subscription, group_protocol="consumer", **settings)

    def python(self, kind: str, subscription: str = "t", **settings: str) -> SpeakingMember:
        where = (self.address, self.group, subscription)
        return self.add(python_member(kind, *where, said=self._said(), **settings))

    def admin(self) -> Admin:
        command = java_command("ConsumerGroups", "admin", self.address, classes=self._classes)
        return self._stack.enter_context(Admin(command, self._said()))

    def read(self) -> dict[tuple[At, int], int]:
        """How often each record was read, by all members that there were."""
        return times_read(itertools.chain(*(member.all_said() for member in self.all)))

    def await_read(self, sent: int) -> None:
        """Return once so many records were read."""
        assert eventually(lambda: len(self.read()) >= sent), (len(self.read()), sent)

    def changes(self) -> int:
        """How often partitions were given, given up or lost."""
        return sum(line.what != READ for member in self.all for line in member.all_said())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Admin(PeerProcess):
    """The admin of the Java client."""

    def answer(self, line: str) -> str:
        return self.ask(line, "^= (.*)$")

    def await_answer(self, line: str, pattern: str) -> str:
        last = ""

        def fits() -> bool:
            nonlocal last
            last = self.answer(line)
            return bool(re.search(pattern, last))

        assert eventually(fits), last
        return last
