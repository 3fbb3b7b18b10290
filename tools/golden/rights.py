"""Random entries and questions about rights, and the answers of Apache Kafka's StandardAuthorizer.

A case is a line as tests/interop/clients/java/Rights.java reads it.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.peers.kafka import NEWEST, PEERS, ROOT, Kafka, jars

_SOURCES = ROOT / "tests" / "interop" / "clients" / "java"
_NAMES = ("a", "ab", "abc", "abd", "b", "ä", "𝄞", "*", "f", "fooa", "foobar", "hardcode")
_PRINCIPALS = ("User:a", "User:b", "User:*", "user:a", "Group:a", "User:", "User:a:b", "Robot:*")
_HOSTS = (
    *("*", "*", "*", "127.0.0.1", "10.1.2.3", "0:0:0:0:0:0:0:1", "localhost", "10.0.0.0/8"),
    *("10.1.2.3/32", "0.0.0.0/0", "::/0", "2001:db8::/32", "10.0.0.0/33", "10.0.0/8"),
)
_CLIENTS = ("127.0.0.1", "10.1.2.3", "10.9.9.9", "::1", "2001:db8::7")
_KINDS = range(2, 8)
_OPERATIONS = range(2, 16)


def lines(seed: int, count: int) -> Iterator[str]:
    """Yield one life of an authorizer. No name that is asked for begins with a star."""
    rng = random.Random(seed)
    kinds, operations = rng.sample(_KINDS, 2), rng.sample(_OPERATIONS, 3)
    principals = ["User:*", *rng.sample([name for name in _PRINCIPALS if name != "User:*"], 2)]
    hosts = ["*", "*", *rng.sample(_HOSTS, 3)]
    users = rng.choice(("", "", "User:b;User:a:b;Robot:*"))
    yield f"new\t{users}\t{rng.choice(('false', 'false', 'true'))}"
    present: dict[tuple[object, ...], int] = {}
    for number in range(count):
        kind = rng.choice(kinds)
        chance = rng.random()
        if chance < 0.35:
            fields = (
                *(kind, rng.choice(_NAMES), rng.choice((3, 3, 4))),
                *(rng.choice(principals), rng.choice(hosts)),
                *(rng.choice((2, *operations)), rng.choice((2, 3, 3, 3))),
            )
            if fields not in present:  # Kafka's controller makes none twice
                present[fields] = number
                yield "\t".join(map(str, ("add", number, *fields)))
        elif chance < 0.45 and present:
            yield f"remove\t{present.pop(rng.choice(list(present)))}"
        else:
            # Kafka fails where a client's own principal is User:*.
            principal = rng.choice(principals[1:])
            who = f"{principal}\t{rng.choice(_CLIENTS)}"
            operation = rng.choice((3, 4, 8, 10, *operations))
            if operation == 2:  # a question is about one operation
                operation = 8
            if chance < 0.9:
                name = rng.choice(_NAMES) + rng.choice(("", "", "x"))
                yield f"decide\t{who}\t{operation}\t{kind}\t{name.lstrip('*') or 'abc'}"
            else:
                yield f"any\t{who}\t{operation}\t{kind}"


def kafka_answers(asked: list[str], peer: str = NEWEST, program: str = "Rights") -> list[str]:
    """Return a Kafka's answer to each line, by a program of tests/interop/clients/java."""
    jars(peer)
    with tempfile.TemporaryDirectory() as classes:
        path = f"{classes}:{PEERS / peer / '*'}"
        source = str(_SOURCES / f"{program}.java")
        subprocess.run(["javac", "-cp", path, "-d", classes, source], check=True)
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        done = subprocess.run(
            ["java", "-Xmx128m", "-XX:+UseSerialGC", quiet, "-cp", path, program],
            input="".join(f"{line}\n" for line in asked),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    told = done.stdout.split("\n")[:-1]
    assert len(told) == len(asked), done.stderr[-2000:]
    return told


def asked_golden() -> list[str]:
    """Return the lines that are kept with their answers."""
    return [line for seed in range(12) for line in lines(seed, 60)]


def answered() -> list[list[str]]:
    """Return these lines, each with the answer of the newest Kafka."""
    asked = asked_golden()
    return [list(pair) for pair in zip(asked, kafka_answers(asked), strict=True)]


def matrix(work: Path) -> dict[str, Any]:
    """Return what the newest Kafka tells principals that have one right each."""
    sys.path.insert(0, str(ROOT / "tests" / "lab"))
    import rights_matrix  # noqa: PLC0415 - lies beside the tests

    with Kafka(
        work,
        settings=rights_matrix.settings(f"User:{rights_matrix.ADMIN};User:ANONYMOUS"),
        listeners={rights_matrix.LISTENER: "SASL_PLAINTEXT"},
    ) as kafka:
        told = rights_matrix.told_by(kafka.address_of(rights_matrix.LISTENER))
    found: dict[str, Any] = rights_matrix.kept(told)
    return found
