"""docs/compatibility.md as text, from what was recorded and from what the broker advertises."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.compatibility_matrix import CLIENTS, FEATURES, NOT_SERVED, TOOLS, Shown

from horolog.broker import service
from horolog.broker.dispatch import served
from horolog.wire.api import ApiKey, Versions
from horolog.wire.other_versions import OLDER

assert service  # importing it has entered every handler

OPENING = """\
<!-- Made by `python tools/compatibility.py`; do not edit. -->
# Compatibility

What horolog answers of Apache Kafka's protocol, and what real clients were seen to do with it. The
tables are made from runs (`tests/compatibility/runs.json`); nothing in them is an intention, and
what was not run is not in them.
"""

ABOUT_APIS = """\
## APIs and versions

`tests/broker/test_every_version.py::test_every_advertised_version_is_answered` sends every version
that is advertised. What each version adds is at the top of its module in
`src/horolog/broker/handlers`. The column on the right is what Apache Kafka {kafka} returned to its
own `kafka-broker-api-versions`.

| key | API | horolog | Kafka {kafka} | |
|---|---|---|---|---|"""

ABOUT_OTHER_APIS = """
These Apache Kafka {kafka} answers too. Here none is advertised, and a request for one ends its
connection with a line in the log.

| API | because |
|---|---|"""

ABOUT_CLIENTS = """
## Clients and features

**yes**: all its tests passed. **no way to ask**: the client has no such call. The tests behind each
row stand below the table.
"""

OWN_SUITES = """
## The clients' own suites

Run by hand against one broker (`group.initial.rebalance.delay.ms=0`; topics of several replicas or
brokers turned into one). Left out: TLS, SASL, KIP-848, share groups. Those of 2026-11-27 were run
on a machine that was busy with other work.

On 2026-11-27:

- franz-go (adb3a18), `pkg/kgo`, with 20,000 records: 111 passed, none failed; `TestTxnEtl` and
  `TestGroupETL` are among them.
- kafka-go (3ce2979), its tests of groups, readers, offsets and transactions: 138 passed. Not
  among them: `consumer group rebalance` and `consumer group commits on close` of
  `TestReaderConsumerGroup`, which fail at Apache Kafka 4.3.1 too (the second dereferences nil in
  the test, as does `verify offset committed when using interval committer`), and
  `TestClientTxnOffsetCommit`, which skips itself from Kafka 3.0 on: it sends a `group.instance.id`
  that its member has not joined with, and gets UNKNOWN_MEMBER_ID (25) at Kafka 4.3.1 and 3.9 too.
  `TestReaderReadCompactedMessage` passes, with a reader that asks for 200 bytes at a time; Kafka
  4.3.1 refuses the test's topic (`segment.bytes=200`).
- confluent-kafka-python (8b1c7a6, release 2.16.1), its integration tests without a schema registry:
  28 passed, all 4 of `test_transactions.py` among them, 4 failed: access rights (without an
  authorizer they fail at Kafka 4.3.1 too); SCRAM users, which are not served; one that starts a
  Kafka with SASL; one that wants `min.insync.replicas` among the settings that are set, and passes
  where the broker's file has it. Where a broker is killed during `send_offsets_to_transaction`,
  librdkafka 2.16.0 may never return from it, whatever its timeouts, at Kafka 4.3.1 (2 of 4 kills,
  90 seconds after the restart) as here (2 of 6).
- librdkafka (4c3b017), all with `-Q` but share groups, three tests at a time: 143 passed, 9 failed,
  13 were skipped. By themselves 7 of these passed: 0053, 0098 (the Java producer in transactions),
  0103 and 0110 once rapidjson was there (0098 and 0103 with one replica), 0077 (compaction), 0091,
  and 0118 in one of two runs: it fails where the second consumer joins first, at Kafka 4.3.1 too.
  6 fail: 4 want access rights (0081, 0109, 0115, 0119) and one three brokers (0101), and fail at
  Kafka 4.3.1 too; 0080 asks no broker, but measures timeouts of 100 ms on a busy machine. In 2 of 8
  runs with others beside it 0077 got no answer to the first request of a connection for 10 seconds,
  in one such run at Kafka 4.3.1 it did. It was sought again (2026-11-28) with a program that opens
  connections and asks for ApiVersions all the time, on two processors that 6 to 24 busy processes
  shared: 3 of 3 runs passed with 6. With 24 the test's own `kafka-topics.sh` timed out while no
  answer to that program took longer than 2.7 seconds. Where answers take seconds the event loop's
  thread waits for a processor (38 of 45 seconds, in which it ran for 1.9), the longest at the first
  use of a version of an API; no request was found that waited for anything else. Of the whole of
  0113, not in quick mode, all subtests passed that ran until its time was over, `l` only with the
  default `group.initial.rebalance.delay.ms`.
- aiokafka 0.14.0, `tests`: 956 passed, 2 failed: one wants certificates, one a broker id of 0 (it
  passes with `node.id=0`). All 20 of transactions are among those that passed.
- sarama (bd98b3a), functional tests: 65 passed, all but one of transactions among them; 8 failed:
  6 want Docker or several brokers, 2 APIs that are not served (quotas, UpdateFeatures).
- KafkaJS 2.2.4, all of `src`: 1,128 passed, 8 were skipped, 115 failed: 42 want TLS or SASL, 30
  access rights. The other 43 fail at Kafka 4.3.1 too; most want three brokers with the ids 0 to 2.
- kafka-python 3.1.0.dev (a3b3836), `test/integration`: 50 passed, one was skipped, 5 failed: access
  rights (without an authorizer, at Kafka 4.3.1 too), `test_group` (at Kafka 4.3.1 too), and 3 of
  APIs that were not served (AlterReplicaLogDirs, DescribeTopicPartitions). 3 of those that passed
  want a broker id of 0, release 4.3 and `advertised.listeners` in the broker's file.

Karapace, run by hand on 2026-11-26 over kills and compaction of `_schemas`, kept its schemas.
"""

NOT_RUN = """
## What was not run

- Other releases of these clients than those named (kcat brings an old librdkafka).
- Other clients: Confluent's for JavaScript, clients for .NET, Rust, Ruby and so on. Those
  built on librdkafka speak to a broker as confluent-kafka does.
- Debezium and others that want transactions or compacted topics, which are new here. Kafka Streams
  with state, Kafka Connect, Flink's exactly-once sink and consume-transform-produce with nine
  clients are run, with kills, by `tests/interop/test_interop_streams.py`,
  `test_interop_connect.py`, `test_interop_flink.py` and `test_interop_exactly_once_clients.py`.
- Share groups and streams groups: not announced.
- Other systems than the one named below.
"""


def page(runs: Mapping[str, Any]) -> str:
    """The whole page, in Markdown."""
    kafka = runs["kafka"]
    parts = (
        OPENING,
        ABOUT_APIS.format(kafka=kafka),
        *_apis(runs["kafka_apis"]),
        ABOUT_OTHER_APIS.format(kafka=kafka),
        *_other_apis(runs["kafka_apis"]),
        ABOUT_CLIENTS,
        *_clients(runs["versions"], runs["outcomes"]),
        "\nBehind the rows:\n",
        *_tests_behind(),
        "\n## Command line tools\n",
        *_tools(runs),
        OWN_SUITES,
        NOT_RUN,
        *_circumstances(runs),
        "",
    )
    return "\n".join(parts)


def _apis(kafka_apis: Mapping[str, str]) -> Iterator[str]:
    for key, ours in served().items():
        theirs = kafka_range(kafka_apis[str(int(key))])
        cells = (
            str(int(key)),
            key.title,
            range_text(ours),
            range_text(theirs),
            _remark(key, ours, theirs),
        )
        yield f"| {' | '.join(cells)} |"


def kafka_range(recorded: str) -> Versions:
    """The versions in `Name LOWEST HIGHEST`."""
    _, low, high = recorded.split()
    return Versions(int(low), int(high))


def _remark(key: ApiKey, ours: Versions, theirs: Versions) -> str:
    if (older := OLDER.get(("request", key))) and ours.max == theirs.max:
        return f"{range_text(Versions(min(older), max(older)))} as Kafka 3.9"
    return "differs" if ours != theirs else ""


def range_text(versions: Versions) -> str:
    """A range as the page has it."""
    low, high = versions
    return str(low) if low == high else f"{low} to {high}"


def _other_apis(kafka_apis: Mapping[str, str]) -> Iterator[str]:
    keys = {recorded.split()[0]: key for key, recorded in kafka_apis.items()}
    for reason, names in NOT_SERVED.items():
        yield f"| {', '.join(f'{name} ({keys[name]})' for name in names)} | {reason} |"


def _clients(versions: Mapping[str, str], outcomes: Mapping[str, str]) -> Iterator[str]:
    titles = [client.title for client in CLIENTS]
    yield f"| | {' | '.join(titles)} |"
    yield f"|---|{'---|' * len(titles)}"
    yield f"| release | {' | '.join(versions[title] for title in titles)} |"
    for feature in FEATURES:
        cells = (cell(feature.shown[title], outcomes) for title in titles)
        yield f"| {feature.title} | {' | '.join(cells)} |"


def cell(shown: Shown, outcomes: Mapping[str, str]) -> str:
    """What the runs say of a feature through a client."""
    if isinstance(shown, str):
        return "no way to ask"
    seen = {outcomes.get(test, "not run") for test in shown}
    if seen == {"passed"}:
        return "yes"
    return "**fails**" if "failed" in seen else "not run"


def _tests_behind() -> Iterator[str]:
    for feature in FEATURES:
        tests, remarks = set(), [feature.remark] if feature.remark else []
        for shown in feature.shown.values():
            if isinstance(shown, str):
                remarks.append(shown)
            else:
                tests |= {function_of(test) for test in shown}
        yield f"- **{feature.title}**{': ' if remarks else ''}{'; '.join(remarks)}"
        yield from (f"  - `{test}`" for test in sorted(tests))


def function_of(test: str) -> str:
    """A test without its parameters."""
    return test.partition("[")[0]


def _tools(runs: Mapping[str, Any]) -> Iterator[str]:
    releases = {"Apache Kafka's": runs["kafka"], **runs["versions"]}
    yield "| tool | what was done | seen |"
    yield "|---|---|---|"
    for owner, tools in TOOLS.items():
        for what, test in tools.items():
            tried = tuple(id_ for id_ in runs["outcomes"] if function_of(id_) == test)
            seen = cell(tried or (test,), runs["outcomes"])
            yield f"| {owner} ({releases[owner]}) | {what} | {seen}: `{test}` |"


def _circumstances(runs: Mapping[str, Any]) -> Iterator[str]:
    versions = runs["versions"]
    yield "## When, and on what\n"
    for what, day in runs["taken"].items():
        yield f"- {what}: {day}"
    yield (
        f"- {runs['system']}; CPython {versions['Python']}, {versions['JVM']}, "
        f"{versions['Go']}, Node {versions['Node']}"
    )
    yield (
        "\n`make test` runs the Python clients, `make interop` the others; "
        "`python tools/compatibility.py`\nruns both and makes this page."
    )
