import pytest
from command_runner import Ran, Run, run_command
from running_broker import RunningBroker, a_broker
from scripted_broker import ScriptedBroker

from horolog.clock import ManualClock
from horolog.record import LogRecord, build_batch

broker = a_broker("clicks", partitions=3, of_topics={"message_timestamp_type": "LogAppendTime"})


@pytest.fixture
def reset(broker: RunningBroker, clock: ManualClock) -> Run:
    """Runs the command against a broker whose clock was 100 days ahead for a record."""
    clock.step("100d")
    for partition in range(2):
        broker.client.produce("clicks", partition, build_batch([LogRecord(-1, None, b"v")]))
    clock.step("-100d")

    def run(*args: object) -> Ran:
        return run_command("topics", "reset-append-time", *args, HOROLOG_BOOTSTRAP=broker.address)

    return run


def test_what_was_reset_and_what_is_still_ahead_is_said(reset: Run) -> None:
    assert reset("clicks", "--partition", 1).lines == [
        "reset 1 partition of clicks, up to 100 days ahead of the clock",
        "1 partition of clicks still up to 100 days ahead",
    ]
    assert reset("clicks", "--json").json == {"topic": "clicks", "reset": 1, "still_ahead": 0}
    again = reset("clicks")
    assert (again.code, again.lines) == (
        0,
        ["no append time of clicks is ahead of the broker's clock"],
    )


@pytest.mark.parametrize("asked", ["clicks", "--all"])
def test_a_clock_of_append_times_that_is_ahead_alone_is_set_back(
    broker: RunningBroker, clock: ManualClock, asked: str
) -> None:
    clock.step("3h")
    broker.run(broker.broker.partitions.keep_stamp_clock())
    clock.step("-3h")
    at = {"HOROLOG_BOOTSTRAP": broker.address}
    ran = run_command("topics", "reset-append-time", asked, **at)
    assert ran.lines[-1] == (
        "the broker's clock of append times is set back to its clock; it was 3 hours ahead"
    )
    again = run_command("topics", "reset-append-time", asked, **at)
    assert again.lines[-1].startswith("no append time")


def test_a_topic_or_partition_that_is_not_there_is_refused(reset: Run) -> None:
    unknown = reset("clicks", "--partition", 7)
    assert unknown.code == 1
    assert "clicks has no partition 7" in unknown.err
    assert reset("nowhere").code == 1


def test_apache_kafka_is_distinguished_in_one_sentence() -> None:
    with ScriptedBroker({}) as kafka:  # announces no feature
        refused = run_command(
            "topics", "reset-append-time", "clicks", HOROLOG_BOOTSTRAP=kafka.bootstrap
        )
        assert refused.code == 1
        assert refused.err.count("\n") == 1
        assert "Apache Kafka's go back with its clock" in refused.err
        assert not [each for each in kafka.seen if each.api_key.name.endswith("CONFIGS")]


def test_help_describes_the_reset_and_names_its_document() -> None:
    text = " ".join(run_command("topics", "reset-append-time", "--help").out.split())
    assert "append-time-resets" in text
    assert "Reset append times to the broker's clock" in text
