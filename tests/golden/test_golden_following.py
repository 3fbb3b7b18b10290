"""What releases of Apache Kafka wrote, followed: every byte of it, in every format and version.

A source answers with stretches of their files, as the releases do: from the batch that holds an
offset on, and cut short wherever the limit falls.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from uuid import UUID

import pytest
from patience import eventually
from running_broker import MakeBroker, RunningBroker
from scripted_source import ScriptedSource, ScriptedTopic

from golden import extract, partitions
from horolog.clock import ManualClock
from horolog.record import parse_header
from horolog.wire import ApiKey, Versions

NOW_MS = 1_795_400_000_000
SETS = ("old-releases", "old-protocols")
MOST_BYTES = 3_000
VERSIONS = {
    "2.1": {
        ApiKey.METADATA: Versions(0, 7),
        ApiKey.FETCH: Versions(0, 10),
        ApiKey.LIST_OFFSETS: Versions(0, 4),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(0, 2),
        ApiKey.DESCRIBE_CONFIGS: Versions(0, 2),
    },
    "2.8": {
        ApiKey.METADATA: Versions(0, 11),
        ApiKey.FETCH: Versions(0, 12),
        ApiKey.LIST_OFFSETS: Versions(0, 6),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(0, 4),
    },
    "4.4": {},
}


class GoldenTopic(ScriptedTopic):
    """The log of one partition, in the bytes that a release wrote."""

    def __init__(self, number: int, path: Path, *, has_id: bool) -> None:
        super().__init__(number)
        self.topic_id = UUID(int=number) if has_id else None
        self.data = b"".join(log.read_bytes() for log in sorted(path.glob("*.log")))
        self._places: list[tuple[int, int]] = []  # the offset after each batch, where it begins
        position, next_offset, epochs, self.start = 0, 0, [0], 0
        while position < len(self.data):
            header = parse_header(self.data, position, next_offset)
            if not position:
                self.start = header.base_offset if header.magic == 2 else 0
            next_offset = header.next_offset
            epochs.append(header.leader_epoch)
            self._places.append((next_offset, position))
            position += header.size
        self.epoch = max(epochs)

    @property
    def end(self) -> int:
        return self._places[-1][0]

    def read(self, offset: int, max_bytes: int) -> bytes:
        for next_offset, position in self._places:
            if next_offset > offset:
                size = parse_header(self.data, position).size
                return self.data[position : position + max(size, max_bytes)]
        return b""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path = tmp_path_factory.mktemp("releases")
    for name in SETS:
        extract(name, path)
    of_3_9 = [each.path for each in partitions("clean", "old-formats")]
    found = [
        each for each in chain(path.glob("*/*-[0-9]"), of_3_9) if not each.name.startswith("__")
    ]
    return [each for each in sorted(found) if any(log.stat().st_size for log in each.glob("*.log"))]


@pytest.fixture(params=VERSIONS)
def source(request: pytest.FixtureRequest, logs: list[Path]) -> Iterator[ScriptedSource]:
    source = ScriptedSource(versions=VERSIONS[request.param])
    for number, path in enumerate(logs, start=1):
        name = f"{path.parent.name}.{path.name}".replace("+", "-")
        source.topics[name] = GoldenTopic(number, path, has_id=request.param == "4.4")
    with source:
        yield source


def bytes_of(shadow: RunningBroker, topic: str) -> bytes:
    logs = sorted((shadow.log_dir / f"{topic}-0").glob("*.log"))
    return b"".join(log.read_bytes() for log in logs)


def test_every_byte_is_followed(source: ScriptedSource, make_broker: MakeBroker) -> None:
    shadow = make_broker(
        clock=ManualClock(NOW_MS),
        horolog_follow=source.address,
        log_retention_ms="-1",
        replica_fetch_max_bytes=str(MOST_BYTES),
    )
    assert len(source.topics) > 40
    magics = set()
    for name, topic in source.topics.items():
        assert isinstance(topic, GoldenTopic)

        def reaches(name: str = name, end: int = topic.end) -> bool:
            found = shadow.broker.partitions.find(name, 0)
            return found is not None and found.log.high_watermark == end

        assert eventually(reaches), shadow.broker.shadow.follower.why
        assert bytes_of(shadow, name) == topic.data, name
        magics.add(parse_header(topic.data).magic)
    assert magics == {0, 1, 2}
