"""What is opened is whole; what cannot be opened whole lets go of everything."""

import asyncio
import threading
from pathlib import Path

import pytest

from horolog.broker import broker as broker_module
from horolog.broker.service import Service
from horolog.config import Settings
from horolog.errors import Misconfigured, StorageFailed
from horolog.metadata.store import MetadataStore


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


def horolog_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("horolog-")]


@pytest.mark.parametrize("step", ["reconcile", "adopt", "broker"])
def test_a_start_that_fails_lets_go_of_the_directory_and_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StorageFailed("refused")

    with monkeypatch.context() as patched:
        if step == "reconcile":
            patched.setattr("horolog.broker.opening.reconcile", refuse)
        elif step == "adopt":
            (tmp_path / "log" / "t-0").mkdir(parents=True)
            patched.setattr(MetadataStore, "put_topic", refuse)
        else:
            patched.setattr(broker_module, "Controller", refuse)
        with pytest.raises(StorageFailed, match="refused"):
            start_and_stop(tmp_path / "log")
    assert horolog_threads() == []
    start_and_stop(tmp_path / "log")
    start_and_stop(tmp_path / "other")
    assert horolog_threads() == []
