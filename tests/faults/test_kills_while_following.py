"""A source and a broker that follows it, both killed over and over: the same bytes in the end.

The source also comes back without its last batches, as after a power failure, and then writes
others in their place.
"""

import os
import random
import signal
import threading
from pathlib import Path

import pytest
from broker_nursery import BornBroker, Nursery
from examples import IS_THOROUGH, some_of
from following import batches_of
from patience import eventually
from running_broker import QUICK

from horolog.client import LATEST, Client
from horolog.errors import HorologError
from horolog.record import LogRecord, build_batch
from horolog.storage import Finding, Severity, Verification

SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))
KILLS = int(os.environ.get("KILLS") or 300)
PARTITIONS = 3
NOW_MS = 1_700_000_000_000
SETTINGS = {
    **QUICK,
    "log.retention.ms": "-1",
    "log.segment.bytes": "20000",
    "log.index.interval.bytes": "700",
    "replica.fetch.backoff.ms": "50",
    "num.partitions": str(PARTITIONS),
}


class Life:
    """A broker that is started again in the same place after each death."""

    def __init__(self, nursery: Nursery, path: Path, **settings: str) -> None:
        self._nursery = nursery
        self.path = path
        self._settings = {**SETTINGS, **{n.replace("_", "."): v for n, v in settings.items()}}
        self.deaths = 0
        self.start()

    def start(self, dies: str | None = None) -> None:
        """Start it, again if it dies before it serves."""
        arguments = ["serve", "--log-dir", str(self.path)]
        for name, value in self._settings.items():
            arguments += ["--set", f"{name}={value}"]
        said = self.path.with_name(f"{self.path.name}.said")
        while True:
            self.born = BornBroker(self._nursery, said, arguments, dies)
            address = self.born.await_ready()
            if address is not None:
                break
            self.check()
            self.deaths += 1
            dies = None
        self.address = address
        self._settings["listeners"] = f"PLAINTEXT://{address}"
        self.client = Client(address, timeout_ms=180_000)

    def kill(self) -> None:
        self.client.close()
        self.born.end()
        self.deaths += 1
        self.check()

    def check(self) -> None:
        said = self.born.said
        assert "Traceback" not in said, said[-6000:]
        assert "a bug" not in said, said[-6000:]

    def end(self) -> None:
        self.client.close()
        if not self.born.has_ended:
            assert self.born.end(signal.SIGTERM) == 0
            self.check()


class Load(threading.Thread):
    """Sends batches for ever, to an address that is not always there."""

    def __init__(self, address: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._client = Client(address, timeout_ms=500)
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self._over.is_set():
            count, size = self._rng.randrange(1, 9), self._rng.randrange(300)
            batch = build_batch(
                [LogRecord(NOW_MS + each, None, bytes(size)) for each in range(count)]
            )
            try:
                self._client.produce("t", self._rng.randrange(PARTITIONS), batch)
                self.sent += 1
            except HorologError:
                self._over.wait(0.01)

    def finish(self) -> None:
        self._over.set()
        self.join(180)
        self._client.close()


def assert_same(source: Life, shadow: Life) -> None:
    """Once nothing is sent any more, the shadow has the source's batches and no others."""
    for partition in range(PARTITIONS):
        target = {("t", partition): LATEST}
        end = source.client.list_offsets(target)["t", partition]
        assert end is not None

        def reaches(target: dict[tuple[str, int], int] = target, end: int = end.offset) -> bool:
            try:
                (found,) = shadow.client.list_offsets(target).values()
            except HorologError:  # the topic is not there yet
                return False
            return found is not None and found.offset == end

        assert eventually(reaches), shadow.born.said[-4000:]
        theirs = batches_of(source.client, "t", partition)
        assert eventually(lambda p=partition, t=theirs: batches_of(shadow.client, "t", p) == t)  # type: ignore[misc]


def has_caught_up_or_ended(source: Life, shadow: Life) -> bool:
    """Whether the shadow has what the source had a moment ago, or has died at its step."""
    if shadow.born.has_ended:
        return True
    targets = {("t", partition): LATEST for partition in range(PARTITIONS)}
    with Client(shadow.address, timeout_ms=2_000) as client:
        try:
            found, expected = client.list_offsets(targets), source.client.list_offsets(targets)
        except HorologError:  # the topic is not there yet
            return False
    # Both are asked under load: some records more may be on their way.
    return all(
        here is not None and there is not None and here.offset + 20 >= there.offset
        for here, there in zip(found.values(), expected.values(), strict=True)
    )


def cut_tails(path: Path, rng: random.Random) -> None:
    """The last bytes of each partition never reached the disk."""
    for partition in range(PARTITIONS):
        logs = sorted((path / f"t-{partition}").glob("*.log"))
        data = logs[-1].read_bytes() if logs else b""
        if data and rng.random() < 0.7:
            logs[-1].write_bytes(data[: -rng.randrange(1, min(len(data), 3000) + 1)])


def run(nursery: Nursery, path: Path, kills: int, seed: int) -> int:
    """Kill either side so often under load; how often the shadow had to cut something off."""
    rng, cuts = random.Random(seed), 0
    source = Life(nursery, path / "source")
    source.client.create_topics({"t": PARTITIONS})
    shadow = Life(nursery, path / "shadow", horolog_follow=source.address)
    load = Load(source.address, seed)
    load.start()
    try:
        while source.deaths + shadow.deaths < kills:
            sent = load.sent + rng.randrange(1, 60)
            assert eventually(lambda sent=sent: load.sent >= sent)  # type: ignore[misc]
            if rng.random() < 0.4:
                if rng.random() < 0.5:  # else it may never have what the source then loses
                    assert eventually(lambda: has_caught_up_or_ended(source, shadow))
                source.kill()
                if rng.random() < 0.7:
                    cut_tails(source.path, rng)
                source.start()
            else:
                cuts += shadow.born.said.count("parts from the one here")
                shadow.kill()
                dies = f"step:{rng.randrange(150)}" if rng.random() < 0.5 else None
                shadow.start(dies)
        load.finish()
        shadow.kill()  # it may be about to die at a step
        shadow.start()
        assert_same(source, shadow)
        cuts += shadow.born.said.count("parts from the one here")
    finally:
        load.finish()
        source.end()
        if not shadow.born.has_ended:
            shadow.end()
    found = [
        step
        for step in Verification.of(shadow.path).steps()
        if isinstance(step, Finding) and step.severity is not Severity.NOTE
        # What was cut off is there to be looked at.
        if not step.path.endswith(".cut")
    ]
    assert not found, found
    return cuts


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", some_of([1, 2], 2))
def test_kills_of_either_side_leave_the_same_bytes(
    nursery: Nursery, tmp_path: Path, seed: int
) -> None:
    run(nursery, tmp_path, 12 if IS_THOROUGH else 3, seed)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", some_of(["full", "sync"], 2))
def test_a_disk_that_refuses_is_gone_on_with_once_it_takes_again(
    nursery: Nursery, tmp_path: Path, how: str
) -> None:
    source = Life(nursery, tmp_path / "source")
    source.client.create_topics({"t": PARTITIONS})
    shadow = Life(nursery, tmp_path / "shadow", horolog_follow=source.address)
    flag = tmp_path / "refuses"
    shadow.kill()
    shadow.start(f"{how}:{flag}")
    load = Load(source.address, 3)
    load.start()
    try:
        for turn in range(2):
            sent = load.sent
            assert eventually(lambda sent=sent: load.sent > sent + 30)  # type: ignore[misc]
            flag.touch()
            source.kill()
            cut_tails(source.path, random.Random(turn))
            source.start()
            sent = load.sent
            assert eventually(lambda sent=sent: load.sent > sent + 100)  # type: ignore[misc]
            if how == "full":
                assert eventually(lambda: "No space left" in shadow.born.said)
            flag.unlink()
        load.finish()
        assert_same(source, shadow)
    finally:
        load.finish()
        source.end()
        shadow.end()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_hundreds_of_kills_of_either_side_leave_the_same_bytes(
    nursery: Nursery, tmp_path: Path
) -> None:
    assert run(nursery, tmp_path, KILLS, SEED) > 0
