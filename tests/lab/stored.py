"""What a broker keeps of topics and settings, changed or lost while it is stopped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from horolog.clock import SystemClock
from horolog.metadata import BROKER, MetadataLog, MetadataStore, open_store
from horolog.schemas.metadata import Config, Record
from horolog.storage import Files, names


def metadata_dir(log_dir: Path) -> Path:
    """Where the metadata log of horolog's own directory is."""
    return log_dir / f"{names.CLUSTER_METADATA}-0"


@contextmanager
def opened_store(log_dir: Path) -> Iterator[MetadataStore]:
    """The store of a stopped broker."""
    store = open_store(Files(), log_dir, 1, SystemClock().now_ms)
    try:
        yield store
    finally:
        store.close()


def append_records(log_dir: Path, *records: Record) -> None:
    """Append metadata records, whatever they say."""
    log = MetadataLog.open(Files(), str(log_dir), node_id=1)
    log.append(records, SystemClock().now_ms())
    log.close()


def spoil_state(log_dir: Path, name: str) -> None:
    """Have what is kept under a name no meaning any more."""
    append_records(log_dir, Config(BROKER, "", name, "{"))


def lose_metadata(log_dir: Path, *, and_identity: bool = False) -> None:
    """Remove the metadata; with `and_identity` the directory does not say whose it was either."""
    shutil.rmtree(metadata_dir(log_dir))
    if and_identity:
        for name in (names.META_PROPERTIES, *names.SERVED):
            (log_dir / name).unlink(missing_ok=True)
