"""The queries that write exactly once, and the one batch that each may write.

`docs/exactly-once.md` has the whole; `storage/producers/attempts.py` what each log remembers. A
batch is

    begun       by every attempt of every task; the first decides how many partitions its topics
                have, when it started, and how rows form record batches. Attempts at earlier
                batches are fenced from here on.
    committed   by the driver, after the last task: the logs have to hold exactly the rows that its
                tasks have reported. From here on attempts may only repeat.

The last batch of a query is kept until the query is forgotten, however long it is stopped.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

from horolog.broker.partition import Partition
from horolog.broker.partitions import Partitions
from horolog.broker.scheduling.metadata_thread import MetadataThread
from horolog.broker.scheduling.turns import TimeSlice
from horolog.clock import Clock
from horolog.errors import ErrorCode, RequestRefused
from horolog.metadata.rows import QueryRow, pinned_topics, repeated_tasks, topics_text
from horolog.metadata.store import MetadataStore
from horolog.metadata.topics import TopicRegistry
from horolog.record.attempts import MOST_BATCHES, MOST_TASKS, batch_digest, slot_of
from horolog.storage.producers.attempts import Fence

_LOG = logging.getLogger(__name__)

MOST_QUERIES: Final = 10_000
MOST_NAMES: Final = 100_000
"""Queries, with those that were forgotten: a row of each stays."""
MOST_TOPICS_CHARACTERS: Final = 24_000
"""Of the names of a batch's topics with their numbers of partitions: a config value is a string of
32,767 bytes at most."""
MOST_CHARACTERS: Final = 16 << 20
"""The same of all queries together."""
MOST_NAME_CHARACTERS: Final = 256
MOST_RUN_CHARACTERS: Final = 64
MOST_BATCH_BYTES: Final = 1 << 30


class Queries:
    """The registry of queries. For the event loop's thread only."""

    def __init__(
        self,
        metadata: MetadataThread,
        store: MetadataStore,
        clock: Clock,
        topics: TopicRegistry,
        partitions: Partitions,
        stored: Sequence[QueryRow],
    ) -> None:
        self._metadata = metadata
        self.store = store
        self._clock = clock
        self._topics = topics
        self._partitions = partitions
        stored = [row for row in stored if _fits(row)]
        self._rows = {row.query: row for row in stored}
        self._of_slot = {row.slot: row.query for row in stored if row.batch >= 0}
        self._characters = sum(len(row.topics) for row in stored)
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        for row in stored:
            if row.batch >= 0:
                self._fence(row)

    def _changing(self, query: str) -> asyncio.Lock:
        """The lock of one query, which others do not wait for."""
        lock = self._locks.get(query)
        if lock is None:
            lock = self._locks[query] = asyncio.Lock()
        return lock

    def known(self) -> list[QueryRow]:
        """All queries that were not forgotten, by name."""
        return sorted(row for row in self._rows.values() if row.batch >= 0)

    def find(self, query: str) -> QueryRow | None:
        """A query that was not forgotten."""
        row = self._rows.get(query)
        return None if row is None or row.batch < 0 else row

    async def begin(
        self,
        query: str,
        batch: int,
        tasks: int | None,
        topics: Sequence[str],
        layout: int,
        batch_bytes: int,
        run: str | None = None,
    ) -> None:
        """Begin a batch, or join it; fix how many partitions these topics have for it.

        All attempts of one run of a batch give the same `run`, if they give any. A batch that
        has rows of another run takes none before this one has repeated them all: otherwise tasks
        that divide the rows in another way would append what is there.

        Raises:
            RequestRefused: the query has gone on to a later batch (47); the batch was begun with
                another number of tasks or another layout (87); a topic does not exist (3); a value
                is out of range (42); too many queries are known (44).
            StorageFailed: the registry cannot be written.
        """
        _check_name(query)
        _check_range("batch", batch, 0, MOST_BATCHES - 1)
        _check_range("tasks", 1 if tasks is None else tasks, 1, MOST_TASKS)
        _check_range("layout", layout, 0, (1 << 31) - 1)
        _check_range("batch_bytes", batch_bytes, 1, MOST_BATCH_BYTES)
        if run is not None and not (0 < len(run) <= MOST_RUN_CHARACTERS and run.isprintable()):
            raise _invalid(f"A run has 1 to {MOST_RUN_CHARACTERS} printable characters")
        async with self._changing(query):
            before = self._rows.get(query)
            row = self._begun(query, batch, tasks, layout, batch_bytes)
            try:
                row = self._pinned(row, topics)
                if row.is_committed:
                    row = await self._reopened(row)
                if run is not None and run != row.run:
                    row = await self._of_run(row, run)
                elif not row.is_open:
                    row = await self._compared(row)
                if row != before:
                    await self._put(row)
            finally:
                if self._rows.get(query) is before:  # nothing was begun
                    self._restore(before, row)

    def _begun(
        self, query: str, batch: int, tasks: int | None, layout: int, batch_bytes: int
    ) -> QueryRow:
        row, asked = self._rows.get(query), -1 if tasks is None else tasks
        if row is None or row.batch < 0:
            life = 0 if row is None else row.life
            slot = self._free_slot(query, life, batch)
        elif batch < row.batch:
            raise RequestRefused(
                ErrorCode.invalid_producer_epoch,
                f"Query {query} has gone on to batch {row.batch}: batch {batch} is over. A query "
                "that was set back (an older checkpoint) needs another name, or to be forgotten: "
                f"`horolog queries forget {query}`",
            )
        elif batch == row.batch:
            if asked not in (-1, row.tasks) and row.tasks >= 0:
                raise _changed(
                    f"Batch {batch} of query {query} was begun with {row.tasks} tasks, and this "
                    f"attempt has {asked}: its rows are divided in another way. Restart the query "
                    "with the settings that it had"
                )
            if layout != row.layout:
                raise _changed(
                    f"Batch {batch} of query {query} was begun by a writer of layout {row.layout}, "
                    f"and this one has layout {layout}: finish the batch with the earlier version"
                )
            return row._replace(tasks=row.tasks if row.tasks >= 0 else asked)
        else:
            life, slot = row.life, row.slot
        now_ms = self._clock.now_ms()
        return QueryRow(
            *(query, life, slot, batch, asked, now_ms, -1, layout, batch_bytes),
            run="",
            is_open=1,
            repeated="[]",
            topics="{}",
        )

    def _free_slot(self, query: str, life: int, batch: int) -> int:
        if len(self._of_slot) >= MOST_QUERIES or len(self._rows) >= MOST_NAMES:
            raise RequestRefused(
                ErrorCode.policy_violation,
                f"This broker knows {len(self._of_slot)} queries that write exactly once, as many "
                "as it can: forget those that have ended (`horolog queries forget`)",
            )
        probe = 0
        while (slot := slot_of(query, life, probe)) in self._of_slot:
            probe += 1
        found = (partition.last_batch_of(slot) for partition in self._partitions.values())
        last = max((each for each in found if each is not None), default=-1)
        if last > batch:  # the registry was lost, and the logs were not
            raise RequestRefused(
                ErrorCode.invalid_producer_epoch,
                f"The logs of this broker hold batch {last} of query {query}: {batch} is over",
            )
        self._of_slot[slot] = query
        return slot

    def _pinned(self, row: QueryRow, wanted: Sequence[str]) -> QueryRow:
        pinned = pinned_topics(row.topics)
        for name in wanted:
            topic = self._topics.named(name)
            if pinned.get(name, (None, 0))[0] != topic.topic_id:
                # New to the batch; or created again, and then nothing of the batch is left in it.
                pinned[name] = (topic.topic_id, len(topic.partitions))
        text = topics_text(pinned)
        if len(text) > MOST_TOPICS_CHARACTERS:
            raise _invalid(f"A batch cannot write exactly once to {len(pinned)} topics")
        before = self._rows.get(row.query)
        added = len(text) - (0 if before is None else len(before.topics))
        if added > 0 and self._characters + added > MOST_CHARACTERS:
            raise RequestRefused(
                ErrorCode.policy_violation,
                "The queries that this broker knows write exactly once to as many topics as it can "
                "remember: forget those that have ended (`horolog queries forget`)",
            )
        return row._replace(topics=text)

    async def _reopened(self, row: QueryRow) -> QueryRow:
        """A committed batch as it is; open again if the logs have lost rows of it since.

        A power failure may take records that were not flushed, and a topic may be deleted.
        """
        if batch_digest(await self._written(row)) == row.committed:
            return row
        _LOG.warning(
            "batch %d of query %s lacks rows that it had when it was committed: its attempts may "
            "write them again",
            *(row.batch, row.query),
        )
        return row._replace(committed=-1)

    async def _of_run(self, row: QueryRow, run: str) -> QueryRow:
        """A batch that another run has begun; closed until that has repeated what is there."""
        if not await self._written(row):
            return row._replace(run=run, is_open=1, repeated="[]")
        row = row._replace(run=run, is_open=0, repeated="[]")
        self._fence(row)  # before the logs are asked: nothing is appended behind it
        for partition in self._partitions_of(row):
            await partition.begin_run(row.slot, row.batch)
        _LOG.info(
            "batch %d of query %s is run again: rows that are there are compared first",
            *(row.batch, row.query),
        )
        return row

    def _restore(self, before: QueryRow | None, row: QueryRow) -> None:
        """Let logs see a query as it was before a change that failed."""
        if before is None or before.batch < 0:
            self._of_slot.pop(row.slot, None)
        else:
            self._fence(before)

    def check_soon(self, slot: int) -> None:
        """See whether a batch is open now, of whose attempts one was told that it is not."""
        query = self._of_slot.get(slot)
        if query is not None and query not in self._checks and not self._is_closed:
            check = self._checks[query] = asyncio.create_task(self._check(query))
            check.add_done_callback(lambda done: self._checked(query, done))

    def _checked(self, query: str, check: "asyncio.Task[None]") -> None:
        del self._checks[query]
        if not check.cancelled() and (error := check.exception()) is not None:
            # A topic is being deleted, say; the next attempt that is refused asks again.
            _LOG.warning("whether query %s may append cannot be seen: %s", query, error)

    async def _check(self, query: str) -> None:
        async with self._changing(query):
            row = self.find(query)
            if row is None or row.is_open:
                return
            compared = await self._compared(row)
            if compared != row:
                await self._put(compared)

    async def _compared(self, row: QueryRow) -> QueryRow:
        """A closed batch with the tasks that have repeated what is there; open if all have.

        They are stored: a task that has ended does not come again if the broker is restarted.
        """
        turns = TimeSlice()
        missing: set[int] = set()
        written: set[int] = set()
        for partition in self._partitions_of(row):
            await turns.pause()
            missing |= await partition.unrepeated(row.slot, row.batch)
            written |= (await partition.rows_of_attempts(row.slot, row.batch)).keys()
        repeated = repeated_tasks(row.repeated) | (written - missing)
        if written <= repeated:
            return row._replace(is_open=1, repeated="[]")
        return row._replace(repeated=json.dumps(sorted(repeated)))

    async def close(self) -> None:
        """End the checks that are under way; no others begin."""
        self._is_closed = True
        checks = list(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    async def commit(self, query: str, batch: int, tasks: int, rows: int, digest: int) -> None:
        """Check that the logs hold what the tasks of a batch have reported, and end the batch.

        `rows` is how many in all, `digest` the `batch_digest` of how many each task has where.
        May be called again. Attempts at the batch append nothing from here on.

        Raises:
            RequestRefused: this is not the query's batch (47); it was begun with another number of
                tasks, or the logs hold other numbers of rows (87): an attempt had other rows.
            StorageFailed: the registry cannot be written.
        """
        _check_range("tasks", tasks, 0, MOST_TASKS)
        async with self._changing(query):
            row = self.find(query)
            if row is None or row.batch != batch:
                at = "is not known" if row is None else f"writes batch {row.batch}"
                raise RequestRefused(
                    ErrorCode.invalid_producer_epoch,
                    f"Batch {batch} of query {query} cannot be committed: the query {at}",
                )
            if row.tasks not in (-1, tasks):
                raise _changed(
                    f"Batch {batch} of query {query} was begun with {row.tasks} tasks, and {tasks} "
                    "have reported"
                )
            _check_range("digest", digest, 0, (1 << 32) - 1)
            committed = row._replace(tasks=tasks, committed=digest)
            self._fence(committed)  # before the logs are asked: nothing is appended behind it
            try:
                written = await self._written(row)
                found = sum(sum(each.values()) for each in written.values())
                if (found, batch_digest(written)) != (rows, digest):
                    raise _differs(row, rows, found, written)
                if committed != row:
                    await self._put(committed)
            except BaseException:
                self._fence(row)
                raise

    async def _written(self, row: QueryRow) -> dict[tuple[str, int], dict[int, int]]:
        """How many rows each task of a batch has in each partition of topics that still exist."""
        turns = TimeSlice()
        written = {}
        for partition in self._partitions_of(row):
            await turns.pause()
            tasks = await partition.rows_of_attempts(row.slot, row.batch)
            if tasks:
                written[partition.topic, partition.index] = tasks
        return written

    def _partitions_of(self, row: QueryRow) -> list[Partition]:
        """The partitions that a batch may write to, of topics that still exist."""
        found = []
        for name, (topic_id, count) in pinned_topics(row.topics).items():
            topic = self._topics.find(name)
            if topic is not None and topic.topic_id == topic_id:
                served = (self._partitions.find(name, index) for index in topic.partitions[:count])
                found += [partition for partition in served if partition is not None]
        return found

    async def forget(self, query: str) -> None:
        """Forget a query: a new one of its name begins with nothing behind it.

        Raises:
            RequestRefused: it is not known (91).
            StorageFailed: the registry cannot be written.
        """
        async with self._changing(query):
            row = self.find(query)
            if row is None:
                raise RequestRefused(
                    ErrorCode.resource_not_found, f"No query {query} writes exactly once here"
                )
            await self._put(
                row._replace(
                    life=row.life + 1,
                    batch=-1,
                    tasks=-1,
                    committed=-1,
                    run="",
                    repeated="[]",
                    topics="{}",
                )
            )
            for partition in list(self._partitions.values()):
                await partition.forget_attempts(row.slot)

    async def _put(self, row: QueryRow) -> None:
        await self._metadata.run(self.store.put_query, row)
        before = self._rows.get(row.query)
        self._rows[row.query] = row
        self._characters += len(row.topics) - (0 if before is None else len(before.topics))
        if row.batch >= 0:
            self._of_slot[row.slot] = row.query
            self._fence(row)
        elif before is not None:
            self._of_slot.pop(before.slot, None)
            self._partitions.fences.of_slot.pop(before.slot, None)

    def _fence(self, row: QueryRow) -> None:
        tasks = None if row.tasks < 0 else row.tasks
        self._partitions.fences.of_slot[row.slot] = Fence(
            *(row.query, row.batch, tasks, row.started_ms),
            is_committed=row.is_committed,
            is_open=bool(row.is_open),
        )


def _differs(
    row: QueryRow, reported: int, found: int, written: Mapping[tuple[str, int], Mapping[int, int]]
) -> RequestRefused:
    what = f"{found} rows, and its tasks have reported {reported}"
    if found == reported:
        what = f"{found} rows as reported, but of other tasks or in other partitions"
    some = [
        f"{topic}-{partition}: {sum(tasks.values())} of {len(tasks)} tasks"
        for (topic, partition), tasks in list(written.items())[:10]
    ]
    return _changed(
        f"Batch {row.batch} of query {row.query} has {what}: an attempt had other rows than one "
        "before it, the plan has changed between them, or a topic was deleted; see "
        "docs/exactly-once.md "
        f"({'; '.join(some) or 'no partition has any'})"
    )


def _check_name(query: str) -> None:
    if not 0 < len(query) <= MOST_NAME_CHARACTERS or not query.isprintable():
        raise _invalid(f"The name of a query has 1 to {MOST_NAME_CHARACTERS} printable characters")


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise _invalid(f"{name}={value}: allowed is {least} to {most}")


def _invalid(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_request, message)


def _changed(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_record, message)


def _fits(row: QueryRow) -> bool:
    """Whether a stored query is within the limits of `begin`: others fit into no answer."""
    fits = (
        len(row.query) <= MOST_NAME_CHARACTERS
        and len(row.run) <= MOST_RUN_CHARACTERS
        and len(row.topics) <= MOST_TOPICS_CHARACTERS
    )
    if not fits:
        _LOG.error("The stored query %.60r is longer than any can be, and is ignored", row.query)
    return fits
