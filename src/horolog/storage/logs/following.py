"""A log that follows: the batches of a source as they are, up to what the source says is readable.

Nothing is validated but that a batch is whole and comes behind the last one, and nothing is
stamped (logs/incoming.py): bytes, offsets, leader epochs and append times are those of the source.
The leader of the source has judged the rest, as for any follower (KIP-32). Of a source without
append times it is kept when the records were seen.

Invariant: the high watermark is at most the log end, and goes back with a truncation alone.
"""

import logging
from collections.abc import Container, Iterable

from horolog.errors import StorageFailed
from horolog.storage.logs.truncating import TruncatingLog
from horolog.storage.producers.states import Unended

_logger = logging.getLogger(__name__)


class FollowingLog(TruncatingLog):
    """See the module."""

    def begin_following(self, high_watermark: int) -> None:
        """Take the batches of a source from here on, and none of producers.

        Args:
            high_watermark: up to which consumers read meanwhile, as far as there are records.
        """
        with self._exclusively():
            end_offset = self.log_end_offset
            self._said_unended = frozenset()
            self.producers.keeps_ended = True
            self.has_transactions = True  # the source's may have any
            self.is_following = True
            self._high_watermark = max(self.log_start_offset, min(high_watermark, end_offset))
            # An epoch in which this log led, and wrote nothing, is not known to another leader.
            self.epochs.truncate_from_end(end_offset)
            self._truncate_append_times(end_offset)
            self._find_unstable()

    def lead(
        self,
        epoch: int,
        now_ms: int,
        *,
        committed: Container[int] = (),
    ) -> None:
        """Take the batches of producers from here on, in a leader epoch that is the largest so far.

        All records are readable. Transactions that are open end as the source said, or are aborted:
        the producers that could end them write to another leader. Where the disk refuses their
        markers they count so meanwhile, and the next start writes them (`end_inherited`). The epoch
        is on the disk before any batch of it.

        Args:
            epoch: the leader epoch.
            now_ms: the clock.
            committed: producer ids whose open transactions are committed.

        Raises:
            StorageFailed: the disk refused; the log still follows.
        """
        assert epoch > self.epochs.latest
        with self._exclusively():
            self._is_settled = False
            self.epochs.assign(epoch, self.log_end_offset)
            self.leader_epoch = epoch
            self.producers.keeps_ended = False
            said = {each[:2]: each for each in self._said_unended}
            self._said_unended = frozenset()
            opened = self.producers.unended()
            self._unended = tuple(
                said.get(each, Unended(*each, each[0] in committed)) for each in opened
            )
            self.is_following, self._high_watermark = False, None
            self._find_unstable()
        try:
            self.end_unended(now_ms)
        except StorageFailed as error:
            _logger.warning("%s: open transactions count as aborted: %s", self, error)

    def end_inherited(
        self,
        epoch: int,
        now_ms: int,
        *,
        committed: Container[int] = (),
    ) -> None:
        """End what was open before the log was first led in an epoch, if anything still is.

        The arguments are those of `lead`.

        Raises:
            StorageFailed: the disk refused; the rest count as aborted.
        """
        with self._exclusively():
            before = self.epochs.end_offset_for(epoch - 1, self.log_end_offset)
            if before is None:
                return
            start, opened = before.start_offset, self.producers.unended()
            self._unended = tuple(
                Unended(*each, each[0] in committed) for each in opened if each[1] < start
            )
            self._find_unstable()
        self.end_unended(now_ms)

    def led_in(self, epoch: int) -> None:
        """The source leads in this epoch, and all that is here is in its log.

        Consumers are given it; one that knows an earlier epoch has to look whether what it has read
        is still there (KIP-320).
        """
        with self._exclusively():
            assert self.is_following
            self.leader_epoch = epoch

    def advance_high_watermark(self, offset: int) -> int:
        """Let consumers read up to an offset, or to the log end; the high watermark."""
        with self._exclusively():
            assert self._high_watermark is not None
            offset = min(offset, self.log_end_offset)
            if offset > self._high_watermark:
                self._high_watermark = offset
                self._find_unstable()
            return self._high_watermark

    def count_unended(self, said: Iterable[Unended]) -> None:
        """Let transactions that no marker ends count as they do at the source, from now on.

        They are open here until the source says so, and after a restart until it says so again.
        Of what it has said nothing is taken back before the log is truncated: what consumers were
        told to leave out, they are not given by a source that starts itself and knows less yet.
        """
        with self._exclusively():
            assert self.is_following
            self._said_unended |= frozenset(said)
            self._find_unstable()

    def start_at(self, offset: int) -> int:
        """Let the log start where its source's does, as far as consumers read; the log start."""
        with self._exclusively():
            self._start_at(min(offset, self.high_watermark))
            return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
