"""Files: an embedded log in Apache Kafka's own layout, usable without a broker.

    config = TopicConfig()
    log_dir = LogDir.open(
        path, broker_config=BrokerConfig(), topic_config=lambda topic: config, now_ms=now_ms
    )
    log = log_dir.create("events", 0, uuid4(), config, now_ms)
    log.append(prepare(batch, config, now_ms), now_ms)
    log.find_by_timestamp(...), log.read(offset, max_bytes).read()
    log_dir.close()

Knows no socket, no event loop and no clock: the time is passed in, in milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horolog.storage.batches.slices import Slice
    from horolog.storage.log_dir.log_dir import LogDir
    from horolog.storage.logs.appendable import Appended
    from horolog.storage.logs.log import Log
    from horolog.storage.lookup.by_timestamp import TimestampOffset
    from horolog.storage.names import TopicPartition
    from horolog.storage.recovery.plan import Recovery
    from horolog.storage.removal.removed_files import DeletedSegment
    from horolog.storage.validation.validate import Prepared, prepare

__all__ = [
    "Appended",
    "DeletedSegment",
    "Log",
    "LogDir",
    "Prepared",
    "Recovery",
    "Slice",
    "TimestampOffset",
    "TopicPartition",
    "prepare",
]

# Looked up when it is asked for: who needs one module of storage, as Spark's processes do,
# does not wait for all of them.
_HOMES = {
    "Appended": "logs.appendable",
    "DeletedSegment": "removal.removed_files",
    "Log": "logs.log",
    "LogDir": "log_dir.log_dir",
    "Prepared": "validation.validate",
    "Recovery": "recovery.plan",
    "Slice": "batches.slices",
    "TimestampOffset": "lookup.by_timestamp",
    "TopicPartition": "names",
    "prepare": "validation.validate",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
