"""What KIP-32, KIP-33 and KIP-937 promise over time and across requests, through real clients.

`docs/conformance.md` names these tests.
"""

import pytest
from kafka_clients import CLIENTS, KafkaClient, Rejected, Sent
from running_broker import NOW_MS, RunningBroker

from horolog.client import ResourceType
from horolog.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock
from horolog.testing import Broker

LONG_MAX = (1 << 63) - 1

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def segments(broker: Broker) -> list[str]:
    return sorted(path.stem for path in (broker.log_dir / "t-0").glob("*.log"))


@every_client
def test_retention_keeps_a_segment_until_its_largest_timestamp_expires(
    client: KafkaClient,
) -> None:
    # KIP-32 7b, KIP-33 "Enforce time based log retention": the last time index entry decides,
    # neither the last record nor the time of the file.
    settings = {"retention.ms": DAY_MS, "segment.bytes": 1200, "segment.ms": 10 * DAY_MS}
    with Broker(clock=ManualClock(NOW_MS)) as broker:
        broker.create_topic("t", settings=settings)
        for age_h in (10, 2, 9, 8, 7, 6, 5, 4, 3):  # three to a segment
            record = Sent(None, b"v" * 300, NOW_MS - age_h * HOUR_MS)
            client.produce(broker.bootstrap_servers, "t", [record], partition=0, codec="none")
        written = ["00000000000000000000", "00000000000000000003", "00000000000000000006"]
        assert segments(broker) == written
        broker.clock.advance(21 * HOUR_MS)
        broker.expire()
        # The first segment's largest timestamp is 23 hours old, its last record 30 hours. The
        # second has expired, and stays as long as a segment before it does.
        assert segments(broker) == written
        broker.clock.advance(90 * MINUTE_MS)
        broker.expire()
        assert segments(broker) == ["00000000000000000009"]


@every_client
def test_a_new_consumer_bootstraps_from_three_days_ago(
    client: KafkaClient, broker: RunningBroker
) -> None:
    # KIP-33 use case 2: a large database is dumped at once, then the last three days are read.
    broker.create_topic("created")
    broker.create_topic("appended", message_timestamp_type="LogAppendTime")
    days = [Sent(None, b"%d" % age, NOW_MS - age * DAY_MS) for age in range(10, 0, -1)]
    for topic in ("created", "appended"):
        client.produce(broker.address, topic, days, partition=0, codec="none")
    three_days_ago = NOW_MS - 3 * DAY_MS
    found = client.offsets_for_times(broker.address, "created", {0: three_days_ago})[0]
    assert found is not None
    assert found[0] == 7
    # "LogAppendTime index does not help": the dump itself is what was appended since then.
    everything = client.offsets_for_times(broker.address, "appended", {0: three_days_ago})[0]
    assert everything is not None
    assert everything[0] == 0


@every_client
def test_the_bounds_on_timestamps_change_cluster_wide_while_the_broker_runs(
    client: KafkaClient, broker: RunningBroker
) -> None:
    # KIP-937: before.max.ms and after.max.ms are cluster-wide dynamic settings.
    broker.create_topic("t")

    def bound(setting: str, value: int | None) -> None:
        every_broker = (ResourceType.BROKER, "")  # no Python client can name it: they want a number
        text = None if value is None else str(value)
        broker.client.alter_configs({every_broker: {setting: text}})

    old = [Sent(None, b"v", NOW_MS)]  # years ago by the broker's clock
    client.produce(broker.address, "t", old, partition=0, codec="none")
    bound("log.message.timestamp.before.max.ms", DAY_MS)
    with pytest.raises(Rejected):
        client.produce(broker.address, "t", old, partition=0, codec="none")
    bound("log.message.timestamp.before.max.ms", None)
    client.produce(broker.address, "t", old, partition=0, codec="none")

    late = [Sent(None, b"v", 32_503_680_000_000)]  # in the year 3000
    with pytest.raises(Rejected):
        client.produce(broker.address, "t", late, partition=0, codec="none")
    bound("log.message.timestamp.after.max.ms", LONG_MAX)
    client.produce(broker.address, "t", late, partition=0, codec="none")
    bound("log.message.timestamp.after.max.ms", None)
    with pytest.raises(Rejected):
        client.produce(broker.address, "t", late, partition=0, codec="none")
