"""How a partition's directory is to be opened, and what that found and did."""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from horolog.config import TopicConfig
from horolog.storage.directory.checkpoint_ids import Checkpointed
from horolog.storage.names import TopicPartition


class LoadPlan(NamedTuple):
    """How a partition's directory is to be opened."""

    config: TopicConfig
    now_ms: int
    is_clean: bool
    checkpointed: Checkpointed = Checkpointed()
    topic_id: UUID | None = None
    """Of a topic that is known; written where the directory has none."""
    is_adopted: bool = False
    follows: bool = False
    """The log takes the batches of a source: its leader owns the epochs, and what recovery cuts off
    comes again. The high watermark is that of the checkpoint."""
    max_batch_uncompressed_bytes: int = 1 << 30
    known_epoch: int = -1
    """The leader epoch that the metadata have; -1 if it is not known."""
    whole_up_to: tuple[int, int] = (0, 0)
    """A segment's base offset and a byte of it: a log that is damaged before is left as it is."""


@dataclass(slots=True)
class Recovery:
    """What opening a partition found and did; `notes` are sentences for the log."""

    partition: TopicPartition
    checked_bytes: int = 0
    removed_bytes: int = 0
    """Cut off the log, or set aside."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """What the operator must see to; sentences like the notes."""

    @property
    def has_findings(self) -> bool:
        """Whether anything was not as a clean stop leaves it."""
        return bool(self.notes or self.warnings)
