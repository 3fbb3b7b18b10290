"""A foreign project's conftest: its settings, and checks that each test cleans up."""

import gc
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def horolog_settings() -> Mapping[str, object]:
    return {"num.partitions": 2}


def open_sockets() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:") or "/horolog" in target:
            found.add(target)
    return found


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Asked for before a broker, so that it looks when the broker has gone."""
    threads = set(threading.enumerate())
    files = open_sockets() if Path("/proc/self/fd").exists() else set()
    yield
    gc.collect()
    assert set(threading.enumerate()) == threads
    if Path("/proc/self/fd").exists():
        assert open_sockets() <= files
