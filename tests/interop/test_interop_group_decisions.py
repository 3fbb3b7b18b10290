"""Decisions of consumer groups that the broker assigns, against Apache Kafka's own classes."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tools.peers.kafka import NEWEST, java

from horolog.groups import (
    ASSIGNORS,
    Assignment,
    Partitions,
    Subscriber,
    assign,
    metadata_hash,
    topic_hash,
)
from horolog.patterns import NamePattern
from horolog.storage import kafka_uuid

SOURCE = Path(__file__).parent / "clients" / "java" / "GroupDecisions.java"
GROUPS = 150
CHANGES = 6


def kafkas_answers(questions: Iterable[dict[str, Any]]) -> list[Any]:
    lines = "".join(f"{json.dumps(question)}\n" for question in questions)
    done = subprocess.run(
        java(NEWEST, str(SOURCE)), input=lines, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def random_text(rng: Random) -> str:
    words = ["consumer-", "é", "\ufffd", "\U0001f980", ""]
    made = f"{rng.choice(words)}{rng.randrange(10_000)}"
    return rng.choice([made, str(UUID(int=rng.getrandbits(128)))])


def random_topics(rng: Random, counts: dict[UUID, int]) -> frozenset[UUID]:
    return frozenset(it for it in counts if rng.random() < rng.choice([0.2, 0.8]))


class RandomGroup:
    """A group whose members and topics change; all have had what they were last assigned."""

    def __init__(self, rng: Random, *, is_homogeneous: bool) -> None:
        self._rng, self._is_homogeneous = rng, is_homogeneous
        self.counts = {
            UUID(int=rng.getrandbits(128)): rng.choice([1, 2, 3, 7, 40])
            for _ in range(rng.randint(1, 14))
        }
        self._topics = random_topics(rng, self.counts)
        self.members: list[Subscriber] = []
        self._join(rng.choice([1, 3, 9, 30]))
        self._remember(self._random_previous())

    def change(self, assigned: Assignment) -> None:
        rng = self._rng
        self._remember(assigned)
        kind = rng.randrange(4)
        if kind == 0:
            self._join(rng.randint(1, 3))
        elif kind == 1:
            self.members = rng.sample(self.members, rng.randint(1, len(self.members)))
        elif kind == 2:
            self.counts[rng.choice(list(self.counts))] += rng.randint(1, 5)
        else:
            self._topics = random_topics(rng, self.counts)
            self.members = [it._replace(topics=self._chosen()) for it in self.members]

    def _join(self, members: int) -> None:
        for _ in range(members):
            instance_id = self._rng.choice([None, random_text(self._rng)])
            joined = Subscriber(random_text(self._rng), instance_id, self._chosen(), {})
            if joined.member_id not in {member.member_id for member in self.members}:
                self.members.append(joined)

    def _chosen(self) -> frozenset[UUID]:
        return self._topics if self._is_homogeneous else random_topics(self._rng, self.counts)

    def _remember(self, assigned: Assignment) -> None:
        self.members = [it._replace(previous=assigned.get(it.member_id, {})) for it in self.members]

    def _random_previous(self) -> Assignment:
        """Some partitions, each of one member, subscribed or not."""
        had: Assignment = {member.member_id: {} for member in self.members}
        for topic_id, count in self.counts.items():
            for number in range(count):
                if self._rng.random() < 0.5:
                    previous = had[self._rng.choice(self.members[: count + 1]).member_id]
                    previous[topic_id] = previous.get(topic_id, frozenset()) | {number}
        return had


def as_json(partitions: Partitions) -> dict[str, list[int]]:
    return {kafka_uuid(topic_id): sorted(numbers) for topic_id, numbers in partitions.items()}


def member_as_json(member: Subscriber) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "topics": [kafka_uuid(it) for it in sorted(member.topics, key=signed_halves)],
        "previous": as_json(member.previous),
    }


def signed_halves(topic_id: UUID) -> bytes:
    return bytes(byte ^ 0x80 * (place in (0, 8)) for place, byte in enumerate(topic_id.bytes))


@pytest.mark.parametrize("is_homogeneous", [True, False])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_get_what_kafkas_assignors_give_them(assignor: str, is_homogeneous: bool) -> None:
    rng = Random(f"{assignor} {is_homogeneous}")
    questions, ours = [], []
    for _ in range(GROUPS):
        group = RandomGroup(rng, is_homogeneous=is_homogeneous)
        for _ in range(CHANGES):
            questions.append(
                {
                    "assignor": assignor,
                    "homogeneous": is_homogeneous,
                    "counts": {kafka_uuid(it): count for it, count in group.counts.items()},
                    "members": [member_as_json(member) for member in group.members],
                }
            )
            assigned = assign(assignor, group.members, group.counts, is_homogeneous=is_homogeneous)
            ours.append({member: as_json(assigned[member]) for member in assigned})
            group.change(assigned)
    theirs = kafkas_answers(questions)
    assert len(theirs) == len(ours)
    for question, our, their in zip(questions, ours, theirs, strict=True):
        assert our == their, question


def test_hashes_of_topics_are_those_of_kafkas_classes() -> None:
    rng = Random("hashes")
    topics = {}
    for partitions in [*range(1, 12), 300]:
        racks = [
            [random_text(rng) for _ in range(rng.choice([0, 1, 3]))] for _ in range(partitions)
        ]
        topics[f"topic-{rng.randrange(10_000)}"] = UUID(int=rng.getrandbits(128)), racks
        topics[f"Topic_{rng.randrange(10_000)}"] = UUID(int=rng.getrandbits(128)), [[]] * partitions
    ours = {
        name: topic_hash(topic_id, name, len(racks), racks)
        for name, (topic_id, racks) in topics.items()
    }
    theirs = kafkas_answers(
        {"topic": name, "id": kafka_uuid(topic_id), "racks": racks}
        for name, (topic_id, racks) in topics.items()
    )
    assert list(ours.values()) == theirs
    some = [dict(list(ours.items())[:size]) for size in range(len(ours))]
    assert [metadata_hash(hashes) for hashes in some] == kafkas_answers(
        {"hashes": hashes} for hashes in some
    )
    for name, (topic_id, racks) in topics.items():
        if not any(racks):
            assert topic_hash(topic_id, name, len(racks)) == ours[name]


PATTERNS = r"""
    orders orders.* ^(?:orders|payments)\.v[0-9]+$ __.* .*\.(eu|us) (?i)ORDERS (?i:o)rders (?s).*
    (?m)^a$ (?U)a+ (?-i)a a| |a () (|a)* a^b a$b [[:alpha:]]+ []a] [^a] [\d-z] [a-z&&[^b]] [a[b]]
    \pL+ \PN \p{Greek} \d+ \w\W \b.* \Bx \Aab\z \Q[a]\E \x41 \x{1f980} \101 é. (?P<n>a)b (?<n>a)b
    (a*)+ (a+)*b a{0} a{1000} a{2}{3} x{ x{1 {1}
    t[ * (?!x) (?=x) (?<=x)a (?>a) a++ a** a{1001} a{2,1} (a a) [] [b-a] [[:foo:]] \p{Foo} \Z \1 \8
    \X \h \u0041 (?P=n) (?x)a (?R) (? (?z) (?P<1a>x) a\ [a-
"""
PARTS = r"""
    a b . [ab] [^a] [a-c.] \w \d \. (a|b) (ab|c)* a? b+ (a*)* a{1,3} ^ $ | (?:a|) (?i:B) a*? [ ( ) *
    ? {2} \b é
"""
NAMES = """
    orders ORDERS orders.v1 payments.v22 orders.eu __consumer_offsets a b ab ba abc aaa x A.b
    a.b-c_d 12 [a] é éü \U0001f980 Ω
"""
ONLY_OURS = [r"\C+", "(?P<n>a)(?P<n>b)", "(?P<é>x)"]
ONLY_KAFKAS = [r"\é", "(a{100}){11}", r"(?:\pL.{30}){30}", "a" * 1001]


def our_names(pattern: str) -> list[str] | None:
    try:
        return [name for name in NAMES.split() if NamePattern(pattern).matches(name)]
    except ValueError:
        return None


def test_patterns_find_the_topics_that_kafkas_library_finds() -> None:
    rng = Random("patterns")
    made = ["".join(rng.choices(PARTS.split(), k=rng.randint(1, 6))) for _ in range(3_000)]
    patterns = ["", *PATTERNS.split(), *made]
    theirs = kafkas_answers({"pattern": it, "names": NAMES.split()} for it in patterns)
    assert theirs.count(None) > 500
    for pattern, found in zip(patterns, theirs, strict=True):
        assert our_names(pattern) == found, pattern


def test_patterns_that_one_library_refuses_and_the_other_does_not() -> None:
    patterns = [*ONLY_OURS, *ONLY_KAFKAS]
    theirs = kafkas_answers({"pattern": it, "names": NAMES.split()} for it in patterns)
    for pattern, found in zip(patterns, theirs, strict=True):
        assert (found is None) is (pattern in ONLY_OURS)
        assert (our_names(pattern) is None) is (pattern in ONLY_KAFKAS)
