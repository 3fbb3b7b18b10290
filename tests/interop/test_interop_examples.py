"""The example of a shadow, as it is, against an Apache Kafka."""

from pathlib import Path

from confluent_kafka import Producer
from shell_blocks import Block, Shell
from tools.peers.kafka import NEWEST, Kafka

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "shadow.sh"
NINE_MS = 1_795_165_200_000  # 2026-11-20T09:00Z
MINUTE_MS = 60_000


def test_a_shadow_of_a_kafka_answers_and_then_leads(tmp_path: Path, shell: Shell) -> None:
    with Kafka(tmp_path / "kafka", peer=NEWEST, settings={"log.retention.ms": "-1"}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for minute in (*range(0, 120, 10), 15):  # the last one comes late
            time_ms = NINE_MS + minute * MINUTE_MS
            producer.produce("clicks", b"minute %d" % minute, b"a", timestamp=time_ms)
        assert producer.flush(60) == 0
        told = shell.run(Block("sh", 0, SCRIPT.read_text(), 1), KAFKA=kafka.bootstrap)
    lines = told.splitlines()
    assert [line for line in lines if line.startswith("minute ")] == [
        *(f"minute {minute}" for minute in range(0, 60, 10)),
        "minute 15",
    ]
    assert "after the promotion" in lines
