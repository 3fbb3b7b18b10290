"""Names of certificates, principals by rules, and waits for quotas: by Java's own classes."""

import random
from collections.abc import Iterator

from tools.golden.rights import kafka_answers

from horolog.errors import Misconfigured
from horolog.quotas import QuotaKey, Quotas, QuotaWindow, WindowedSum
from horolog.security import map_name, parse_rules, subject_name

BASE_MS = 10**9
OIDS = [
    *("550403", "550406", "550407", "550408", "550409", "55040a", "55040b", "550405", "55040c"),
    *("0992268993f22c640119", "0992268993f22c640101", "2a864886f70d010901", "8837"),
]
LETTERS = [*' ,=+<>#;"\\ab \t\r\n\0', "ä", "日", "𝄞", "\x7f", "\x80", "\u2028", "e\u0301"]
TAGS = [0x0C, 0x0C, 0x13, 0x16, 0x14, 0x1E, 0x1B, 0x1A, 0x12, 0x04, 0x1C, 0x03]
PATTERNS = [
    *(r"^CN=(.*?),OU=(.*)$", r"CN=(\w+)(,.*)?", r"^.*[Cc][Nn]=([a-z.]*).*$", ".*", "(.*)", ""),
    *(r"CN=(a)|CN=(b)", r"CN=(?<who>\w+).*", r"CN=((\\, *|\w)+)(,.*|$)", r"CN=a\/b", "[^,=]*"),
    *(r"CN=([^,]+),?.*", r"(C)(N)=(.)(.*)", r"CN=[.\]]+"),
]
REPLACEMENTS = ["$1", "$1@$2", "x", "", r"\$1", "$12", "$0-$1", r"a\/b", "$9", "${who}"]
NAMES = [
    *(
        "CN=Duke,OU=Web,O=Org",
        "cn=duke,dc=org",
        "CN=a",
        "CN=b",
        "CN=a/b",
        "OU=x",
        "",
        "CN=Zoë,C=DE",
    ),
    *(r"CN=Tkac\, Adam,OU=x", "CN=a\nb", "CN=a\rb,OU=x", "CN=a\u2028b", "CN=..]", "CN=straße"),
]


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([tag, *([size] if size < 128 else [0x82, *size.to_bytes(2, "big")])]) + content


def subject(rng: random.Random) -> bytes:
    """A subject in DER, of a random shape."""
    parts = []
    for _ in range(rng.randrange(4)):
        attributes = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            value = "".join(rng.choices(LETTERS, k=rng.randrange(6))).encode()
            kind = element(6, bytes.fromhex(rng.choice(OIDS)))
            attributes.append(element(0x30, kind + element(rng.choice(TAGS), value)))
        parts.append(element(0x31, b"".join(sorted(attributes))))
    return b"".join(parts)


def test_names_are_written_as_java_writes_them() -> None:
    rng = random.Random(1)
    subjects = [subject(rng) for _ in range(2_000)]
    told = kafka_answers(
        [f"name\t{element(0x30, it).hex()}" for it in subjects], program="Security"
    )
    for one, its in zip(subjects, told, strict=True):
        fields = element(2, b"\1") + element(0x30, b"") * 3 + element(0x30, one)
        ours = subject_name(element(0x30, element(0x30, fields)))
        assert ours == bytes.fromhex(its[1:]).decode()


def test_rules_make_the_principals_that_they_do_at_kafka() -> None:
    rng = random.Random(2)
    asked = []
    for _ in range(3_000):
        rules = [
            f"RULE:{rng.choice(PATTERNS)}/{rng.choice(REPLACEMENTS)}/{rng.choice(('', 'L', 'U'))}"
            for _ in range(rng.randrange(1, 4))
        ]
        asked.append((rng.choice((",", " , ", ",,")).join([*rules, "DEFAULT"]), rng.choice(NAMES)))
    lines = [f"rules\t{rules.encode().hex()}\t{name.encode().hex()}" for rules, name in asked]
    compared = 0
    for (rules, name), its in zip(asked, kafka_answers(lines, program="Security"), strict=True):
        try:
            made = map_name(parse_rules(rules), name)
        except Misconfigured:  # a rule with which Kafka would refuse some certificates
            continue
        if its != "none":
            compared += 1
            assert made == bytes.fromhex(its[1:]).decode(), (rules, name)
    assert compared > 500


def uses(rng: random.Random, limit: float, span: QuotaWindow) -> Iterator[tuple[float, int]]:
    now_ms = BASE_MS
    for _ in range(rng.randrange(30)):
        steps = (0, 1, rng.randrange(3_000), span.sample_ms, rng.randrange(40_000))
        now_ms += rng.choice(steps)
        yield rng.choice((1.0, limit * span.samples, limit * rng.random() * 20)), now_ms


def test_waits_for_rates_are_kafka_s_to_the_millisecond() -> None:
    rng = random.Random(3)
    lines, ours = [], []
    for _ in range(600):
        span = QuotaWindow(rng.choice((2, 3, 11)), rng.choice((500, 1000, 2000)))
        limit, window = rng.choice((0.5, 10.0, 1000.0, 1e6)), WindowedSum()
        lines.append(f"rate\t{span.samples}\t{span.sample_ms}\t{limit}")
        ours.append(0)
        for amount, now_ms in uses(rng, limit, span):
            lines += [f"use\t{amount}\t{now_ms}", f"wait\t{now_ms}"]
            window.add(amount, now_ms, span)
            ours += [0, window.wait_ms(limit, now_ms, span)]
    told = [0 if it == "ok" else int(it) for it in kafka_answers(lines, program="Security")]
    assert sum(told) > 0
    assert max(abs(its - mine) for its, mine in zip(told, ours, strict=True)) <= 1


def test_waits_for_mutations_are_kafka_s_to_the_millisecond() -> None:
    rng = random.Random(4)
    lines, ours = [], []
    for _ in range(300):
        span = QuotaWindow(rng.choice((2, 5, 11)), rng.choice((1000, 2000)))
        limit, quotas = rng.choice((0.5, 1.0, 10.0)), Quotas(span, span)
        quotas.put(frozenset({("user", "a")}), QuotaKey.CONTROLLER_MUTATION_RATE, limit)
        found = quotas.limit(QuotaKey.CONTROLLER_MUTATION_RATE, "a", "")
        assert found is not None
        lines.append(f"bucket\t{span.samples}\t{span.sample_ms}\t{limit}")
        ours.append(0)
        for amount, now_ms in uses(rng, limit, span):
            lines += [f"use\t{int(amount)}\t{now_ms}", f"wait\t{now_ms}"]
            ours += [0, quotas.mutate(found, int(amount), now_ms, is_strict=False)]
    told = [0 if it == "ok" else int(it) for it in kafka_answers(lines, program="Security")]
    assert sum(told) > 0
    assert max(abs(its - mine) for its, mine in zip(told, ours, strict=True)) <= 1
