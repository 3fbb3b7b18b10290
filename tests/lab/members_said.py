"""What members of a group say that they have and read, looked at together.

Programs in tests/interop/clients say it.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from patience import eventually
from peer_process import PeerProcess
from tools.peers.kafka import ROOT

PROGRAM = ROOT / "tests/interop/clients/python/member.py"
GIVEN, GIVES_UP, LOST, READ = "+", "-", "!", "r"
_LINE = re.compile(r"^(\d+) ([-+!r]) (\S+) (\d+) (-?\d+)$", re.MULTILINE)
At = tuple[str, int]
"""Topic and partition."""


class Said(NamedTuple):
    """A line of a member, with the time in milliseconds since 1970."""

    at_ms: int
    what: str
    at: At
    offset: int


class SpeakingMember(PeerProcess):
    """A member that runs beside a test."""

    def all_said(self) -> list[Said]:
        """Of all its lives."""
        return [
            Said(int(at_ms), what, (topic, int(partition)), int(offset))
            for at_ms, what, topic, partition, offset in _LINE.findall(self.said)
        ]

    def has(self) -> set[At]:
        """The partitions that its latest life has."""
        found: set[At] = set()
        for line in self.find(_LINE.pattern):
            at = (line[2], int(line[3]))
            if line[1] == GIVEN:
                found.add(at)
            elif line[1] != READ:
                found.discard(at)
        return found


def python_member(
    kind: str, address: str, group: str, subscription: str, said: Path, **settings: str
) -> SpeakingMember:
    """Start a member of one of the Python clients; settings with underscores for dots."""
    command = [sys.executable, str(PROGRAM), kind, address, group, subscription]
    for name, value in settings.items():
        command.append(f"{name.replace('_', '.') if kind == 'confluent-kafka' else name}={value}")
    return SpeakingMember(command, said)


def shared_out(members: Iterable[SpeakingMember], partitions: Iterable[At]) -> bool:
    """Whether each partition has one owner, and each member has one."""
    owned = [member.has() for member in members]
    return all(owned) and sorted(at for each in owned for at in each) == sorted(partitions)


def await_shared_out(members: Iterable[SpeakingMember], partitions: Iterable[At]) -> None:
    """Return once that is so; fail soon if one of them has ended."""
    members, partitions = list(members), list(partitions)

    def is_over() -> bool:
        return shared_out(members, partitions) or not all(member.lives for member in members)

    assert eventually(is_over), said_by(members)
    assert shared_out(members, partitions), said_by(members)


def said_by(members: Sequence[SpeakingMember]) -> str:
    """What they have and have said, but for the records."""
    said = [re.sub(r"(?m)^\d+ r .*\n", "", member.said) for member in members]
    return "\n\n".join(
        f"exit code {member.code}, has {sorted(member.has())}\n{text[-3000:]}"
        for member, text in zip(members, said, strict=True)
    )


class Tenure(NamedTuple):
    """From when to when a member has had a partition."""

    at: At
    from_ms: int
    to_ms: int
    member: int


def tenures(lives: Iterable[tuple[int, list[Said], int]]) -> Iterator[Tenure]:
    """Yield who has had what: by the number of a member, what it said, and when its life ended."""
    for number, lines, ended_ms in lives:
        since: dict[At, int] = {}
        for line in lines:
            if line.what == GIVEN:
                since.setdefault(line.at, line.at_ms)
            elif line.what != READ and line.at in since:
                yield Tenure(line.at, since.pop(line.at), line.at_ms, number)
        for at, from_ms in since.items():
            yield Tenure(at, from_ms, ended_ms, number)


def owned_twice(found: Iterable[Tenure]) -> list[tuple[Tenure, Tenure]]:
    """Pairs of members that have had a partition at the same time."""
    by_place: dict[At, list[Tenure]] = defaultdict(list)
    for tenure in found:
        by_place[tenure.at].append(tenure)
    pairs = []
    for each in by_place.values():
        each.sort(key=lambda tenure: tenure.from_ms)
        pairs += [
            (one, other)
            for one, other in itertools.pairwise(each)
            if other.from_ms < one.to_ms and one.member != other.member
        ]
    return pairs


def times_read(lines: Iterable[Said]) -> Counter[tuple[At, int]]:
    """How often each record was read, by its place and offset."""
    return Counter((line.at, line.offset) for line in lines if line.what == READ)
