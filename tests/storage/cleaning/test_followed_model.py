"""Random lives of a log that compacts and the log that follows it, each cleaned for itself.

Few keys in small segments: most groups lose all of their records. The leader and the follower are
killed, restarted and cleaned at any moment, and change their roles; what the new leader never had
is truncated. Both must hold the latest record of each key, and only records that were written.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from compacting import COMPACT, check_lookups, clean, faults, put
from examples import some_of
from faultyfiles import FaultyFiles, Killed
from storelogs import NOW, TOPIC_ID, open_dir, pull, records_in

from horolog.record import HEADER_SIZE, parse_header
from horolog.storage import Log, TopicPartition

CONFIG = replace(COMPACT, delete_retention_ms=1 << 40, segment_bytes=400)
PARTITION = TopicPartition("events", 3)
KEYS = [b"a", b"b", b"c"]
Facts = tuple[bytes | None, bytes | None, int]


def whole(data: bytes) -> bytes:
    """What an answer has of whole batches."""
    end = 0
    while end + HEADER_SIZE <= len(data):
        size = parse_header(data, end).size
        if end + size > len(data):
            break
        end += size
    return data[:end]


class Node:
    """A log in a directory of its own."""

    log: Log

    def __init__(self, path: Path, *, follows: bool) -> None:
        self.path, self.follows = path, follows
        self.cleaned_to = 0  # also by a run that was killed
        self._open()
        self.log = self.log_dir.create(*PARTITION, TOPIC_ID, CONFIG, NOW)
        if follows:
            self.log.begin_following(0)

    def _open(self) -> None:
        self.files = FaultyFiles(None, for_ops=1 << 30)
        self.log_dir = open_dir(self.path, CONFIG, follows=self.follows, files=self.files)

    def restart(self, *, is_clean: bool) -> None:
        self.files.heal()
        if is_clean:
            self.log_dir.checkpoint()
        self.log_dir.close(clean=is_clean)
        self._open()
        self.log = self.log_dir.logs[PARTITION]
        if self.follows:  # as its source says with the next fetch
            self.log.move_high_watermark(self.log.log_end_offset)

    def clean(self, now: int, steps: int | None = None) -> None:
        """Clean it; with `steps` it is killed at that operation of the file system."""
        self.cleaned_to = max(self.cleaned_to, self.log.segments[-1].base_offset)
        if steps is None:
            clean(self.log, now)
            return
        self.files.fail_after(steps, Killed())
        with suppress(Killed):
            clean(self.log, now)
        self.restart(is_clean=False)

    def facts(self) -> dict[int, Facts]:
        return {r.offset or 0: (r.key, r.value, r.timestamp) for r in records_in(self.log)}


class Pair:
    """A leader and its follower, and what was written."""

    def __init__(self, path: Path, chance: Random) -> None:
        self.leader, self.follower = (
            Node(path / "one", follows=False),
            Node(path / "two", follows=True),
        )
        self.chance = chance
        self.written: dict[int, Facts] = {}
        self.now = NOW
        self.epoch = 0

    def append(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            self.now += self.chance.choice([0, 1, 20])
            keys = self.chance.choices(KEYS, k=self.chance.randrange(1, 4))
            value = self.chance.choice([None, b"v" * 20, b"v" * 90])
            log, at = self.leader.log, self.now - self.chance.choice([0, 0, 50])
            first = put(log, *keys, at=at, now=self.now, value=value).base_offset
            for place, key in enumerate(keys):
                self.written[first + place] = key, value, at + place

    def roll(self) -> None:
        if self.leader.log.segments[-1].size:
            self.leader.log.roll(self.now)

    def catch_up(self, most: int = 1 << 30) -> None:
        """Have the follower read on, of that many answers at most."""
        source, log = self.leader.log, self.follower.log
        while most and log.log_end_offset < source.log_end_offset:
            most -= 1
            end = log.log_end_offset
            data = whole(bytes(source.read(end, 300).read()))
            times = source.append_times(end, source.log_end_offset)
            pull(log, data, now=self.now, append_times=times)

    def fetch(self) -> None:
        self.catch_up(self.chance.randrange(1, 6))

    def clean(self) -> None:
        node = self.chance.choice([self.leader, self.follower])
        node.clean(self.now, self.chance.choice([None, None, self.chance.randrange(120)]))

    def restart(self) -> None:
        node = self.chance.choice([self.leader, self.follower])
        node.restart(is_clean=self.chance.random() < 0.5)

    def promote(self) -> None:
        """The follower leads; what it never had is truncated where it was not compacted."""
        old, new = self.leader, self.follower
        if old.cleaned_to > new.log.log_end_offset or self.chance.random() < 0.5:
            self.catch_up()
        self.epoch += 1
        new.log.lead(max(self.epoch, new.log.epochs.latest + 1), self.now)
        self.epoch, new.follows, old.follows = new.log.leader_epoch, False, True
        end = new.log.log_end_offset
        old.log.begin_following(end)
        old.log.truncate_to(end, self.now)
        self.leader, self.follower = new, old
        self.written = {offset: each for offset, each in self.written.items() if offset < end}

    def check(self) -> None:
        is_even = self.leader.log.log_end_offset == self.follower.log.log_end_offset
        for node in (self.leader, self.follower):
            found, end = node.facts(), node.log.log_end_offset
            assert found.items() <= self.written.items(), node.path
            if node is self.leader or is_even:
                latest = {key: at for at, (key, *_) in self.written.items() if at < end}
                lost = set(latest.values()) - found.keys()
                assert not lost, (node.path, lost)
            check_lookups(node.log)


@pytest.mark.parametrize("seed", some_of(range(6), 3))
def test_leader_and_follower_keep_the_latest_record_of_each_key(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    pair = Pair(tmp_path, chance)
    does = [pair.append] * 4 + [pair.fetch] * 3 + [pair.clean] * 3
    does += [pair.catch_up, pair.restart, pair.promote, pair.roll]
    emptied = 0
    for _ in range(60):
        chance.choice(does)()
        pair.check()
        emptied += sum(not each.size for each in pair.leader.log.segments[:-1])
    assert emptied, "nothing is left of some segments"
    pair.catch_up()
    pair.check()
    for node in (pair.leader, pair.follower):
        node.log_dir.checkpoint()
        node.log_dir.close()
        assert [each for each in faults(node.path) if ".cut" not in each.path] == []
