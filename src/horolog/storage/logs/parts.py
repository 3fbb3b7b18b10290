"""What opening a partition's directory gives its log (recovery/loading.py, log_dir/log_dir.py)."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from horolog.config import TopicConfig
from horolog.storage.append_times.floor import AppendTimes
from horolog.storage.files import Files
from horolog.storage.logs.epochs import LeaderEpochs
from horolog.storage.names import TopicPartition
from horolog.storage.producers.states import Producers
from horolog.storage.segments.active import ActiveSegment
from horolog.storage.segments.segment import Segment
from horolog.storage.validation.validate import MAX_UNCOMPRESSED_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParts:
    """The parts of one log; each is open."""

    files: Files
    directory: str
    partition: TopicPartition
    config: TopicConfig
    segments: Sequence[Segment]
    """In offset order, at least one."""
    active: ActiveSegment
    """Appends to the last of them."""
    topic_id: UUID | None
    producers: Producers
    """Up to the log end offset."""
    epochs: LeaderEpochs
    append_times: AppendTimes
    leader_epoch: int = 0
    high_watermark: int | None = None
    """Of a log that follows; None of one that leads."""
    log_start_offset: int = 0
    cleaner_point: int | None = None
    """All records before this offset were cleaned; None if it never was."""
    recovery_point: int = 0
    """All records before this offset are flushed."""
    retention_exempt: bool = False
    """The log is adopted."""
    is_settled: bool = False
    """All files are as `Log.finish` leaves them."""
    is_in_doubt: bool = False
    """An earlier process has seen a sync fail, and none succeed since."""
    max_batch_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES
    """A lookup decompresses no more of one batch."""
    set_aside: Sequence[str] = ()
    """Names of files that recovery has set aside in the directory."""
