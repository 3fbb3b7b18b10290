"""Which transactions a Kafka had decided to commit when it stopped; read, never written.

Its coordinator writes its decision to `__transaction_state` (schemas/transactions.py) before the
first marker goes to a partition (KIP-98): from then on the transaction is committed, and a Kafka
that starts again only makes up for the markers.
"""

import logging
import os
from collections.abc import Iterator

from horolog.errors import HorologError
from horolog.schemas.transactions import Status, TransactionValue, read_transaction
from horolog.storage import names
from horolog.storage.adoption.records import records_in
from horolog.storage.file_errors import FileMissing
from horolog.storage.files import Files
from horolog.storage.names import TopicPartition

_logger = logging.getLogger(__name__)

PreparedCommits = dict[TopicPartition, frozenset[int]]


def read_prepared_commits(files: Files, log_dir: str) -> PreparedCommits:
    """For each partition the producer ids whose open transaction there is committed.

    Unreadable records are skipped with a warning.

    Raises:
        StorageFailed: the log directory cannot be listed.
    """
    found: dict[TopicPartition, set[int]] = {}
    for name in files.names_in(log_dir):
        named, directory = names.partition_of(name), f"{log_dir}/{name}"
        if named is None or named.topic != names.TRANSACTION_STATE or os.path.islink(directory):
            continue
        for state in _states_in(files, directory):
            if state.status is Status.PREPARE_COMMIT:
                for topic, indexes in (state.partitions or {}).items():
                    for index in indexes:
                        found.setdefault(TopicPartition(topic, index), set()).add(state.producer_id)
    return {partition: frozenset(ids) for partition, ids in found.items()}


def _states_in(files: Files, directory: str) -> Iterator[TransactionValue]:
    states: dict[bytes, bytes] = {}  # the newest of each transactional id
    try:
        for name in files.names_in(directory):
            if names.base_offset_of(name, names.LOG) is None:
                continue
            for record in records_in(files, f"{directory}/{name}"):
                if record.key is None:
                    continue
                if record.value is None:
                    states.pop(record.key, None)
                else:
                    states[record.key] = record.value
    except (HorologError, FileMissing) as error:
        _logger.warning("What Kafka's transactions came to is known only in part: %s", error)
    for value in states.values():
        try:
            yield read_transaction(value)
        except HorologError as error:
            _logger.warning("What a transaction of Kafka's came to is not known: %s", error)
