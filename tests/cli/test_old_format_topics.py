"""The commands on a topic whose format is raised from v0 to v2 under them (KIP-32)."""

import json

from command_runner import run_command
from running_broker import EVER, RunningBroker, a_broker

NINE = 1_795_165_200_000  # 2026-11-20T09:00:00Z
RELEASES = ("0.9.0", "0.10.0", "0.11.0")


broker = a_broker(
    now_ms=NINE + 3_600_000,
    inter_broker_protocol_version="2.8",
    log_message_timestamp_after_max_ms=EVER,
    log_retention_ms="-1",
)


def test_commands_write_find_read_inspect_and_verify_every_format(broker: RunningBroker) -> None:
    def horolog(*args: object, stdin: str | None = None):
        return run_command(*args, stdin=stdin, HOROLOG_BOOTSTRAP=broker.address)

    assert horolog("topics", "create", "t").code == 0
    for number, release in enumerate(RELEASES):
        setting = f"message.format.version={release}"
        assert horolog("topics", "alter", "t", "--config", setting).code == 0
        lines = "".join(
            json.dumps({"timestamp": NINE + 10 * number + at, "value": f"{number}{at}"}) + "\n"
            for at in range(3)
        )
        sent = horolog("produce", "t", "--format", "json", "--codec", "gzip", stdin=lines)
        assert sent.code == 0, sent.err
        broker.clock.advance(1_000)
    assert {header.magic for header in broker.headers("t")} == {0, 1, 2}
    read = [json.loads(line) for line in horolog("consume", "t", "--format", "json").lines]
    assert [row["value"] for row in read] == [f"{n}{at}" for n in range(3) for at in range(3)]
    times = [-1] * 3 + [NINE + 10 * n + at for n in (1, 2) for at in range(3)]
    assert [row["timestamp"] for row in read] == times
    kinds = ["NoTimestampType"] * 3 + ["CreateTime"] * 6
    assert [row["timestamp_type"] for row in read] == kinds
    some = horolog("consume", "t", "--from-time", "2026-11-20T09:00:00.011Z", "--to-time",
                   "2026-11-20T09:00:00.021Z", "--format", "value")  # fmt: skip
    assert some.lines == ["11", "12", "20"]
    late = horolog("consume", "t", "--clock", "append", "--from-time", "2026-11-20T10:00:01Z",
                   "--to-time", "2026-11-20T10:00:02Z", "--format", "value")  # fmt: skip
    assert late.lines == ["10", "11", "12"]
    for clock, time, offset in (
        ("create", "2026-11-20T09:00:00.012Z", 5),
        ("append", "2026-11-20T10:00:00.500Z", 3),
    ):
        found = horolog("offsets", "t", "--at", time, "--clock", clock, "--json").json
        assert [each["offset"] for each in found["partitions"]] == [offset]
    shown = horolog("log", "inspect", broker.log_dir / "t-0", "--records", "--json")
    assert shown.code == 0
    verified = horolog("log", "verify", broker.log_dir)
    assert verified.code == 0, verified.out
    broker.stop()
    verified = run_command("log", "verify", broker.log_dir)
    assert verified.code == 0, verified.out
