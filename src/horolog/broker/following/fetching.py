"""Follows the partitions that one other broker leads.

Everything is decided on the event loop, one answer at a time, by the rule book of each partition
(`replication.asked`). At most one request is in flight, so that a leader's answers take at
most `FetchLimits.max_bytes` of memory, or one batch that is larger. Records go through the write
queues of their partitions, and the next fetch is sent once they are there. An error of a partition
is that partition's alone: it is asked again after a pause, the others continue.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from horolog.broker.following.appending import carry_out, local, take, unended_in
from horolog.broker.following.followed import Followed, LeaderAsker
from horolog.broker.partition import log_failure
from horolog.broker.scheduling.turns import TimeSlice
from horolog.client.fetch_session import FetchPosition
from horolog.client.fetching import Fetched
from horolog.client.leader import EpochEnd, LogBounds
from horolog.client.security import AuthenticationFailed
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, RequestRefused
from horolog.offsets import TopicPartition
from horolog.replication.asked import AskedPartition, Asks, StartAt
from horolog.replication.truncation import TruncateTo
from horolog.storage.directory.checkpoints import EpochStart
from horolog.storage.file_errors import WouldBlock
from horolog.storage.logs.appendable import Appended
from horolog.storage.logs.log import Log

__all__ = ["LeaderFetcher"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
AnswerT = TypeVar("AnswerT", EpochEnd, LogBounds)

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Pauses after errors of a leader as a whole."""

FAILURES: Final = 3
"""Errors in a row after which a leader that does not answer is reported."""

SILENT_MS: Final = 2_000
"""Silence of a leader, beyond its own wait, after which it counts as not answering."""

ON_LOOP_BYTES: Final = 1 << 20
"""Bytes of an answer that are appended on the event loop: two changes of thread cost more."""

BUSY_MS: Final = 20
"""Pause before another look at a partition whose log is being changed."""


class LeaderFetcher:
    """Follows the partitions of one leader.

    For the event loop's thread only.

    Args:
        leader: to ask; the fetcher closes it.
        title: of the leader, in messages.
        clock: for what the log does with times.
        max_wait_ms: how long the leader may wait for records.
        follows_start: whether logs start where the source's do.
        look_again: has the source looked at again.
    """

    def __init__(
        self,
        leader: LeaderAsker,
        title: str,
        clock: Clock,
        *,
        max_wait_ms: int,
        follows_start: bool = False,
        look_again: Callable[[], None],
    ) -> None:
        self.why: str | None = None
        """Reason why the leader cannot be asked; None if it can."""
        self.answered_ms: int | None = None
        """Event loop's time of its last answer to a fetch."""
        self.asked_ms: int | None = None
        """Event loop's time of the last fetch whose answer is in the logs."""
        self._leader = leader
        self._title = title
        self._clock = clock
        self._max_wait_ms = max_wait_ms
        self._follows_start = follows_start
        self._look_again = look_again
        self._loop = asyncio.get_running_loop()
        self._attended: dict[
            TopicPartition, Followed[AskedPartition]
        ] = {}  # that are to be asked something else
        self._reading: dict[
            TopicPartition, Followed[AskedPartition]
        ] = {}  # whose records are fetched
        self._changed: dict[TopicPartition, FetchPosition] = {}  # of these, since the last fetch
        self._forgotten: dict[TopicPartition, None] = {}
        self._has_changed = asyncio.Event()
        self._failures = 0
        self._task = asyncio.create_task(self._run(), name=f"follow {title}")

    @property
    def is_answering(self) -> bool:
        """True if the leader answers, as far as is known; its own wait is not silence."""
        if self.answered_ms is None or self.why is not None:
            return False
        return self._now_ms() - self.answered_ms <= self._max_wait_ms + SILENT_MS

    # --- partitions -------------------------------------------------------------------

    def attend(self, followed: Followed[AskedPartition]) -> None:
        """Ask the question of a partition's state from now on, or again from the beginning."""
        self.drop(followed)
        if followed.state.asks is not Asks.NOTHING:
            self._attended[followed.key] = followed
            self._has_changed.set()

    def drop(self, followed: Followed[AskedPartition]) -> None:
        """Stop asking about a partition; the answer to a request in flight is ignored."""
        self._attended.pop(followed.key, None)
        followed.position = None
        if self._reading.pop(followed.key, None) is not None:
            self._changed.pop(followed.key, None)
            self._forgotten[followed.key] = None

    async def stop(self) -> None:
        """Stop asking. Batches that are being appended are appended."""
        self._task.cancel()
        await self._leader.close()
        await asyncio.gather(self._task, return_exceptions=True)

    # --- the loop ---------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._ask_once()
                if self._failures >= FAILURES:
                    _LOG.info("%s is followed again", self._title)
                self._failures, self.why = 0, None
            except (HorologError, OSError) as error:
                await self._pause_after(error)
            except Exception:  # noqa: BLE001 - a bug in one round does not end the following
                _LOG.exception("a bug in following %s", self._title)
                await self._pause_after(HorologError("a bug: see the log"))

    async def _pause_after(self, error: Exception) -> None:
        """Wait after an error of the leader as a whole, and have the source looked at again."""
        why = str(error)
        if isinstance(error, AuthenticationFailed | RequestRefused):
            if why != self.why:
                _LOG.error("%s cannot be followed: %s", self._title, why)
        elif self._failures == FAILURES:
            _LOG.warning("%s cannot be followed now: %s", self._title, why)
        self.why = why
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self._failures, 16), LONGEST_PAUSE_S)
        self._failures += 1
        self._look_again()
        await asyncio.sleep(pause_s)

    async def _ask_once(self) -> None:
        """Send one request of the most urgent kind, and act on its answer."""
        self._has_changed.clear()
        now_ms = self._now_ms()
        begins: list[Followed[AskedPartition]] = []
        ends: list[Followed[AskedPartition]] = []
        bounds: list[Followed[AskedPartition]] = []
        due_ms = now_ms + self._max_wait_ms
        for followed in list(self._attended.values()):
            state = followed.state
            if followed.is_busy:
                due_ms = min(due_ms, now_ms + BUSY_MS)
            elif state.not_before_ms > now_ms:
                due_ms = min(due_ms, state.not_before_ms)
            elif state.asks is Asks.EPOCH_END:
                ends.append(followed)
            elif state.asks is Asks.BOUNDS:
                bounds.append(followed)
            else:
                begins.append(followed)
        if begins:  # thousands at once, where a broker has failed
            await asyncio.gather(*map(self._read, begins))
        if ends:
            await self._ask_epoch_ends(ends)
        elif bounds:
            await self._ask_bounds(bounds)
        elif self._reading:
            await self._fetch(max(0, due_ms - now_ms))
        else:
            await self._wait(max(0, due_ms - now_ms))

    async def _wait(self, pause_ms: int) -> None:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._has_changed.wait()
        except TimeoutError:
            pass

    async def _read(self, followed: Followed[AskedPartition]) -> None:
        """Fetch the partition's records from now on: its log is a prefix of the leader's."""
        epoch, turn = followed.state.epoch, followed.state.turn
        effect = followed.state.before_reading(local(followed.partition.log))
        if effect is not None and not await self._carry_out(followed, effect):
            return
        if followed.partition.log.leader_epoch != epoch:
            await self._change(followed, followed.partition.change(lambda log: log.led_in(epoch)))
        if followed.state.turn == turn and self._attended.pop(followed.key, None) is not None:
            self._reading[followed.key] = followed
            followed.reading_since_ms = self._now_ms()
            self._want(followed)

    def _want(self, followed: Followed[AskedPartition]) -> None:
        """Fetch from the log end, if the leader knows another position."""
        log, state = local(followed.partition.log), followed.state
        position = FetchPosition(
            state.position(log),
            followed.topic_id,
            state.epoch,
            state.last_epoch(log),
            log.start if state.is_replica else -1,
        )
        if position != followed.position:
            self._changed[followed.key] = followed.position = position

    async def _ask_epoch_ends(self, asked: list[Followed[AskedPartition]]) -> None:
        positions = {one.key: (one.state.epoch, one.state.asked_epoch) for one in asked}
        what = [f"end of leader epoch {one.state.asked_epoch}" for one in asked]
        asking = self._leader.epoch_ends(positions)
        async for followed, answer in self._answers(asked, what, asking):
            state, log = followed.state, local(followed.partition.log)
            effect = state.on_epoch_end(answer.epoch, answer.end_offset, log, self._now_ms())
            await self._carry_out(followed, effect)

    async def _ask_bounds(self, asked: list[Followed[AskedPartition]]) -> None:
        positions = {one.key: one.state.epoch for one in asked}
        what = ["offsets"] * len(asked)
        async for followed, answer in self._answers(asked, what, self._leader.bounds(positions)):
            await self._on_bounds(followed, answer)

    async def _answers(
        self,
        asked: list[Followed[AskedPartition]],
        what: Sequence[str],
        asking: Awaitable[Mapping[TopicPartition, AnswerT]],
    ) -> AsyncIterator[tuple[Followed[AskedPartition], AnswerT]]:
        """Ask the leader about partitions; yield the answers that have no error."""
        turns = [one.state.turn for one in asked]
        answers = await asking
        for followed, turn, about in zip(asked, turns, what, strict=True):
            if followed.state.turn != turn:
                continue
            answer, title = answers.get(followed.key), f"{about} of {followed.partition.name}"
            if answer is None:
                why = f"{title}: the answer does not mention it"
                followed.state.on_failure(why, self._now_ms())
            elif answer.error != ErrorCode.none:
                self._refused(followed, answer.error, title)
            else:
                yield followed, answer

    async def _on_bounds(self, followed: Followed[AskedPartition], answer: LogBounds) -> None:
        state, name, now_ms = followed.state, followed.partition.name, self._now_ms()
        gaps = len(state.gaps), state.gaps[-1:]
        log = local(followed.partition.log)
        effect = state.on_bounds(answer.start, answer.end, log, now_ms)
        if (len(state.gaps), state.gaps[-1:]) != gaps:
            _LOG.warning(
                "%s: offsets %d to %d are missing: the source had deleted them before they were "
                "followed, and starts at %d. What is here before them stays",
                name,
                state.gaps[-1].start,
                state.gaps[-1].end - 1,
                answer.start,
            )
        await self._carry_out(followed, effect)

    async def _carry_out(
        self, followed: Followed[AskedPartition], effect: TruncateTo | StartAt | None
    ) -> bool:
        """Change the log as its rule book says; return False if that failed."""
        if effect is None:
            return True
        partition = followed.partition
        end = partition.log.log_end_offset
        if isinstance(effect, TruncateTo):
            is_replica = followed.state.is_replica
            is_committed = effect.offset < partition.log.high_watermark
            _LOG.log(
                logging.WARNING if is_committed or not is_replica else logging.INFO,
                "%s: the leader's log parts from the one here at offset %d: offsets up to %d are "
                "cut off%s",
                partition.name,
                effect.offset,
                end - 1,
                ", of which some were committed" if is_committed and is_replica else "",
            )
        else:
            _LOG.info("%s: following begins at offset %d", partition.name, effect.offset)
        epoch = followed.state.epoch
        change = partition.change(lambda log: carry_out(log, effect, epoch, self._clock.now_ms()))
        if await self._change(followed, change) is None:
            followed.state.on_undone(local(partition.log))
            return False
        return True

    async def _change(
        self, followed: Followed[AskedPartition], change: "asyncio.Future[T]"
    ) -> T | None:
        """Wait for a change of a log; return None if it failed, which the state notes."""
        followed.is_busy = True
        try:
            return await asyncio.shield(change)
        except Exception as error:  # noqa: BLE001 - a bug with one partition does not hold up the others
            self._on_failure(followed, error)
            return None
        finally:
            change.add_done_callback(lambda _: self._on_changed(followed))

    def _on_failure(self, followed: Followed[AskedPartition], error: Exception) -> None:
        why = str(error)
        if not isinstance(error, HorologError):
            _LOG.error("a bug in following %s", followed.partition.name, exc_info=error)
            why = "a bug: see the log"
        followed.state.on_failure(why, self._now_ms())

    def _on_changed(self, followed: Followed[AskedPartition]) -> None:
        followed.is_busy = False
        self._has_changed.set()

    # --- records ----------------------------------------------------------------------

    async def _fetch(self, max_wait_ms: int) -> None:
        positions, self._changed = self._changed, {}
        forgotten, self._forgotten = self._forgotten, {}
        asked_ms = self._now_ms()
        try:
            answers = await self._leader.fetch(positions, forgotten, max_wait_ms)
        except BaseException:
            # Not known to be known there: named again, unless they have changed since.
            self._changed = positions | self._changed
            self._changed = {k: p for k, p in self._changed.items() if k in self._reading}
            self._forgotten = forgotten | self._forgotten
            raise
        self.answered_ms = self._now_ms()
        appends: list[Coroutine[Any, Any, None]] = []
        turns, left = TimeSlice(), ON_LOOP_BYTES
        is_alone = sum(len(answer.fetched.records) > 0 for answer in answers.values()) == 1
        for key, answer in answers.items():
            await turns.pause()
            followed = self._reading.get(key)
            if followed is None:
                continue  # its leader has changed meanwhile
            if answer.error != ErrorCode.none:
                self._refused(followed, answer.error, f"fetch of {followed.partition.name}")
                self.attend(followed)
            elif answer.diverging is not None:
                appends.append(self._diverge(followed, EpochStart(*answer.diverging)))
            elif self._changes_log(followed, answer.fetched):
                left -= len(answer.fetched.records)
                if left < 0 or not self._append_nowait(followed, answer.fetched, is_alone=is_alone):
                    appends.append(self._append(followed, answer.fetched, is_alone=is_alone))
            else:
                self._on_records(followed, answer.fetched)
        # All of them to the end, also where one fails: the next answer takes their memory.
        if appends:
            for outcome in await asyncio.gather(*appends, return_exceptions=True):
                if outcome is not None:
                    raise outcome
        self.asked_ms = asked_ms

    async def _diverge(self, followed: Followed[AskedPartition], diverging: EpochStart) -> None:
        state, turn = followed.state, followed.state.turn
        log = local(followed.partition.log)
        await self._carry_out(followed, state.on_diverging(diverging, log, self._now_ms()))
        if state.turn == turn and followed.key in self._reading:
            self.attend(followed)

    def confirmed_ms(self, followed: Followed[AskedPartition]) -> int:
        """Return the time of the last request that found nothing missing; -1 if none did."""
        is_here = followed.state.offsets_behind == 0 and followed.key in self._reading
        if self.asked_ms is None or not is_here or followed.is_busy:
            return -1
        return self.asked_ms if self.asked_ms >= followed.reading_since_ms else -1

    def _changes_log(self, followed: Followed[AskedPartition], given: Fetched) -> bool:
        """True if a fetch contains news for a partition's log."""
        log = followed.partition.log
        return (
            len(given.records) > 0
            or given.high_watermark > log.high_watermark < log.log_end_offset
            or log.is_news(unended_in(given))
            or (self._follows_start and given.log_start_offset > log.log_start_offset)
        )

    def _append_nowait(
        self, followed: Followed[AskedPartition], given: Fetched, *, is_alone: bool
    ) -> bool:
        """Append on the event loop, where a thread would cost more; False if that may block."""
        taken = None
        try:
            taken = followed.partition.change_nowait(
                partial(self._take, given, followed.state.epoch, may_block=False)
            )
        except WouldBlock:
            return False
        except Exception as error:  # noqa: BLE001 - a bug with one partition does not hold up the others
            self._on_failure(followed, error)
        if taken is not None:
            self._on_taken(followed, taken, given, is_alone=is_alone)
        if followed.state.failures:
            self.attend(followed)
        return True

    async def _append(
        self, followed: Followed[AskedPartition], given: Fetched, *, is_alone: bool
    ) -> None:
        """Append in a thread, behind the writes that are validated by now."""
        state = followed.state
        turn = state.turn
        change = followed.partition.change(partial(self._take, given, state.epoch))
        taken = await self._change(followed, change)
        if state.turn != turn or followed.key not in self._reading:
            return
        if taken is not None:
            self._on_taken(followed, taken, given, is_alone=is_alone)
        if state.failures:
            self.attend(followed)

    def _take(self, given: Fetched, epoch: int, log: Log, *, may_block: bool = True) -> Appended:
        now_ms, follows_start = self._clock.now_ms(), self._follows_start
        return take(log, given, epoch, now_ms, follows_start=follows_start, may_block=may_block)

    def _on_taken(
        self, followed: Followed[AskedPartition], taken: Appended, given: Fetched, *, is_alone: bool
    ) -> None:
        if not taken.size and len(given.records):
            # Cut short: others came before it, and next time come after it.
            if is_alone:
                followed.state.on_failure("the leader gives no whole batch", self._now_ms())
            return
        if taken.rolled:
            followed.partition.flush_rolled().add_done_callback(log_failure)
        if taken.size:
            followed.arrived_ms = self._now_ms()
        self._on_records(followed, given)
        self._want(followed)

    def _on_records(self, followed: Followed[AskedPartition], given: Fetched) -> None:
        log = local(followed.partition.log)
        followed.state.on_records(given.high_watermark, log, self._now_ms())

    def _refused(self, followed: Followed[AskedPartition], code: ErrorCode, what: str) -> None:
        if followed.state.on_error(code, what, self._now_ms()):
            self._look_again()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
