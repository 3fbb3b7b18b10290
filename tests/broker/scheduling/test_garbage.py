"""When a broker that has a process of its own collects all garbage."""

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest
from overrides import override

from horolog.broker import DUE_AFTER, MOST_DELAYS, FullCollections


class Cycle:
    """Only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def due() -> Iterator["weakref.ref[Cycle]"]:
    """Garbage among the oldest objects, and a full collection is due."""
    automatic = gc.isenabled()
    gc.disable()
    gc.collect()
    cycle = Cycle()
    garbage = weakref.ref(cycle)
    for _ in range(DUE_AFTER):
        gc.collect(1)
    if gc.get_count()[2] < DUE_AFTER:
        pytest.skip("this Python collects old objects in small steps")
    del cycle
    yield garbage
    gc.unfreeze()
    if automatic:
        gc.enable()


def test_a_full_collection_that_is_due_waits_while_the_broker_is_busy(
    due: "weakref.ref[Cycle]",
) -> None:
    busy = True
    collections = FullCollections(lambda: busy)
    collections.look()
    assert due() is not None
    busy = False
    collections.look()
    assert due() is None


def test_garbage_is_collected_in_the_end_however_busy_the_broker_is(
    due: "weakref.ref[Cycle]",
) -> None:
    collections = FullCollections(lambda: True)
    for _ in range(MOST_DELAYS):
        collections.look()
    assert due() is not None
    collections.look()
    assert due() is None


def test_nothing_is_collected_while_it_is_not_due(due: "weakref.ref[Cycle]") -> None:
    gc.collect()
    late = Cycle()
    garbage = weakref.ref(late)
    gc.collect(0)
    del late
    FullCollections(lambda: False).look()
    assert garbage() is not None


def test_what_has_survived_is_looked_at_again_once_there_is_several_times_as_much(
    due: "weakref.ref[Cycle]", monkeypatch: pytest.MonkeyPatch
) -> None:
    collections = FullCollections(lambda: False)
    survivor = Cycle()
    garbage = weakref.ref(survivor)
    collections.look()
    assert due() is None
    del survivor
    for _ in range(DUE_AFTER):
        gc.collect(1)
    collections.look()
    assert garbage() is not None
    override(monkeypatch, "horolog.broker", LEAST_BLOCKS=0)
    for _ in range(DUE_AFTER):
        gc.collect(1)
    collections.look()
    assert garbage() is None


def test_pythons_own_schedule_is_suspended_and_restored() -> None:
    before = gc.get_threshold()

    async def run() -> tuple[int, ...]:
        collections = FullCollections(lambda: False)
        collections.start()
        during = gc.get_threshold()
        collections.stop()
        return during

    during = asyncio.run(run())
    assert during[2] > 1_000_000 or sys.version_info >= (3, 14)
    assert during[0] > before[0]
    assert gc.get_threshold() == before


_SERVE = """
import asyncio, gc, sys

from horolog.broker.service import Service
from horolog.config import Settings


async def main():
    gc.set_threshold(100, 1, 1)
    before, collections = gc.get_threshold(), []
    settings = Settings({"log.dir": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"})
    gc.callbacks.append(lambda phase, info: collections.append(info["generation"]))
    service = await Service.start(settings, load_kernels=False, owns_process={owns})
    print(bool(collections), gc.isenabled())
    print(gc.get_threshold() == before)
    await service.stop()
    print(gc.get_threshold() == before)


asyncio.run(main())
"""


@pytest.mark.parametrize("owns", [True, False])
def test_only_a_process_of_its_own_has_a_schedule_of_its_own(
    owns: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = _SERVE.replace("{owns}", str(owns))
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path_factory.mktemp("garbage"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [str(not owns), "True", str(not owns), "True"], done.stderr
