"""The states of transactional ids in one file, where `__transaction_state` is another's."""

from collections.abc import Awaitable, Callable
from typing import Final

from horolog.broker.scheduling.metadata_thread import MetadataThread
from horolog.buffers import Buffer
from horolog.metadata.transaction_file import TransactionFile
from horolog.record.builder import Record
from horolog.record.stamped import stamped_batch
from horolog.storage.names import TRANSACTIONS_FILE


class FileStateLog:
    """See `transaction_states.StateLog`: one partition, which is always there."""

    name: Final = TRANSACTIONS_FILE
    exists: Final = True
    count: Final = 1
    is_followed: Final = False

    def __init__(self, thread: MetadataThread, file: TransactionFile) -> None:
        self._thread = thread
        self._file = file

    async def ready(self) -> None:
        """It is."""

    def partition_of(self, key: str) -> int:
        """The one."""
        return 0

    def append_record(self, key: str, record: Record) -> Awaitable[None]:
        """Append a record; it survives a kill of the process."""
        batch = stamped_batch([record], record.timestamp)
        return self._thread.run(self._file.append, [batch.data])

    async def load(self, index: int, take: Callable[[Buffer], None]) -> None:
        """Give all batches to `take`, in the thread of the file."""
        await self._thread.run(self._file.load, take)
