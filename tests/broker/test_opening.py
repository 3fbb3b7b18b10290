"""What is opened is whole; what cannot be opened whole lets go of everything."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from overrides import override
from patience import PATIENCE_S

from horolog.broker import NewTopic, Service, partitions
from horolog.config import Settings
from horolog.errors import Misconfigured, StorageFailed
from horolog.metadata import MetadataStore
from horolog.storage import LogDir


def settings_for(log_dir: Path, port: int = 0) -> Settings:
    return Settings({"log.dir": str(log_dir), "listeners": f"PLAINTEXT://127.0.0.1:{port}"})


def start_and_stop(log_dir: Path) -> None:
    """Meanwhile no other process can have the directory or the port."""

    async def run() -> None:
        service = await Service.start(settings_for(log_dir), load_kernels=False)
        try:
            taken = service.bound[0].port
            for settings in settings_for(log_dir), settings_for(log_dir.with_name("other"), taken):
                with pytest.raises(Misconfigured):
                    await Service.start(settings, load_kernels=False)
        finally:
            await service.stop()

    asyncio.run(run())


def horolog_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("horolog-")}


@pytest.mark.parametrize("step", ["reconcile", "adopt", "broker"])
def test_a_start_that_fails_lets_go_of_the_directory_and_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StorageFailed("refused")

    before = horolog_threads()  # of a broker that another test has killed
    with monkeypatch.context() as patched:
        if step == "reconcile":
            override(patched, "horolog.broker", reconcile=refuse)
        elif step == "adopt":
            (tmp_path / "log" / "t-0").mkdir(parents=True)
            patched.setattr(MetadataStore, "put_topic", refuse)
        else:
            override(patched, "horolog.broker.alone", Controller=refuse)
        with pytest.raises(StorageFailed, match="refused"):
            start_and_stop(tmp_path / "log")
    assert horolog_threads() <= before
    start_and_stop(tmp_path / "log")
    start_and_stop(tmp_path / "other")
    assert horolog_threads() <= before


def test_a_stop_waits_for_partitions_that_are_made_for_a_cancelled_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else their directories come after the lock is released, and when the logs are closed."""
    steps: list[str] = []
    begun, stopping = threading.Event(), threading.Event()
    create, close, wait = LogDir.create_all, LogDir.close, partitions.wait

    def create_late(*args: Any, **named: Any) -> None:
        begun.set()
        assert stopping.wait(PATIENCE_S)
        create(*args, **named)
        steps.append("created")

    def wait_for_them(*args: Any) -> Any:
        stopping.set()
        return wait(*args)

    def close_now(*args: Any, **named: Any) -> list[str]:
        steps.append("closed")
        stopping.set()
        return close(*args, **named)

    async def run() -> None:
        service = await Service.start(settings_for(tmp_path), load_kernels=False)
        monkeypatch.setattr(LogDir, "create_all", create_late)
        monkeypatch.setattr(LogDir, "close", close_now)
        override(monkeypatch, "horolog.broker.partitions", wait=wait_for_them)
        creating = asyncio.create_task(
            service.broker.controller.create_topic(NewTopic(name="t", partitions=3))
        )
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        creating.cancel()
        await service.stop()
        with pytest.raises(asyncio.CancelledError):
            await creating

    asyncio.run(run())
    assert steps == ["created", "closed"]


@pytest.mark.parametrize(
    "name",
    ["horolog-metadata.sqlite", "horolog-metadata.sqlite-wal"]
    + [f"t-0/{0:020d}.{kind}" for kind in ("appendtimes", "seal", "blocks")],
)
def test_a_directory_in_the_form_of_an_earlier_version_is_refused_and_left_as_it_was(
    tmp_path: Path, name: str
) -> None:
    log_dir = tmp_path / "log"
    (log_dir / "t-0").mkdir(parents=True)
    (log_dir / name).write_bytes(b"SQLite format 3\0")
    before = sorted(path for path in log_dir.rglob("*"))
    with pytest.raises(Misconfigured, match=rf"settings, committed offsets.*: {name}\. "):
        start_and_stop(log_dir)
    assert sorted(path for path in log_dir.rglob("*") if path.name != ".lock") == before
    (log_dir / name).unlink()
    start_and_stop(log_dir)
