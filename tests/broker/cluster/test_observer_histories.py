"""An observer of the metadata log has what the quorum has committed, whatever happens."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from observing import Observing, QuorumLink, state_of
from scripted_quorum import QuorumLog

from horolog.metadata import KafkaForm
from horolog.schemas import metadata as m
from horolog.schemas.metadata import Record
from horolog.storage import Files


class ObserverHistory(RuleBasedStateMachine):
    """A quorum that elects, loses what is not committed, and makes snapshots; and an observer."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="h-observer-")
        self.quorum = QuorumLog([100, 101])
        self.quorum.lead(100)
        self.link = QuorumLink(self.quorum)
        self.numbers = 0
        self.committed = {0: state_of(self.quorum.image)}
        self.known = 0
        self.observing: Observing | None = None
        self.note()
        self.start()

    def start(self) -> None:
        self.observing = Observing(Path(self.directory.name), self.link)

    def teardown(self) -> None:
        if self.observing is not None:
            self.observing.log.close()
            self.directory.cleanup()

    def note(self) -> None:
        """Remember the state of each offset that is committed now."""
        if self.quorum.high_watermark == self.quorum.end:
            self.committed[self.quorum.end] = deepcopy(state_of(self.quorum.image))

    @rule(count=st.integers(1, 4), in_transaction=st.booleans())
    def append(self, count: int, in_transaction: bool) -> None:
        for _ in range(count):
            self.numbers += 1
            topic_id = UUID(int=1000 + self.numbers)
            topics = list(self.quorum.image.topics.values())
            records: list[Record] = [
                m.TopicRecord(f"t{self.numbers}", topic_id),
                m.PartitionRecord(0, topic_id, (1,), (1,), (), (), 1, 0, 0, 0),
            ]
            if topics and self.numbers % 3 == 0:
                records = [m.RemoveTopic(topics[0].topic_id)]
            elif topics and self.numbers % 3 == 1:
                records = [m.PartitionChange(0, topics[-1].topic_id, leader=1)]
            if in_transaction:
                self.quorum.append([m.BeginTransaction("t")])
                for record in records:
                    self.quorum.append([record])
                records = [m.EndTransaction()]
            self.quorum.append(records)
        self.note()

    @rule()
    def hold(self) -> None:
        self.quorum.hold()

    @rule()
    def release(self) -> None:
        self.quorum.release()
        self.note()

    @rule(node=st.sampled_from([100, 101]), lose_tail=st.booleans())
    def lead(self, node: int, lose_tail: bool) -> None:
        if lose_tail and self.quorum.start:
            return  # the lab cannot tell the image of such a tail
        self.quorum.lead(node, lose_tail=lose_tail)
        self.note()

    @rule(deletes_log=st.booleans())
    def snapshot(self, deletes_log: bool) -> None:
        if self.quorum.high_watermark == self.quorum.end > 0:
            self.quorum.snapshot(deletes_log=deletes_log)

    @rule(part_bytes=st.integers(1, 1000))
    def answer_in_parts(self, part_bytes: int) -> None:
        self.link.part_bytes = part_bytes

    @rule()
    def fetch_once(self) -> None:
        assert self.observing is not None
        self.observing.observer.fetch()

    @rule()
    def fetch_all(self) -> None:
        assert self.observing is not None
        self.observing.fetch()

    @rule()
    def make_own_snapshot(self) -> None:
        assert self.observing is not None
        self.observing.observer.snapshot()

    @rule()
    def restart(self) -> None:
        assert self.observing is not None
        self.observing.log.close()
        self.start()

    @rule(lost=st.integers(0, 300), junk=st.booleans())
    def lose_power(self, lost: int, junk: bool) -> None:
        assert self.observing is not None
        self.observing.log.close()
        directory = Path(self.directory.name) / "__cluster_metadata-0"
        newest = max(directory.glob("*.log"))
        data = newest.read_bytes()
        data = data[: max(0, len(data) - lost)] + (b"\xff" * lost if junk else b"")
        newest.write_bytes(data)
        (directory / "quorum-state").unlink(missing_ok=True)
        self.start()

    @invariant()
    def published_state_is_committed(self) -> None:
        if getattr(self, "observing", None) is None:
            return
        assert self.observing is not None
        offset = self.observing.offset
        assert offset <= self.quorum.high_watermark
        if offset in self.committed:
            assert self.observing.state == self.committed[offset]
        else:
            assert offset < self.quorum.high_watermark or self.quorum.is_held

    @rule()
    def becomes_equal_once_all_is_quiet(self) -> None:
        assert self.observing is not None
        self.quorum.release()
        self.note()
        self.observing.fetch()
        assert self.observing.offset == self.quorum.high_watermark
        assert self.observing.state == state_of(self.quorum.image)
        stored = {batch.base: batch.data for batch in self.quorum.batches}
        damage: list[object] = []
        form = KafkaForm(Files(read_only=True), self.directory.name)
        for batch in form.kept(damage):  # type: ignore[arg-type]
            base = int.from_bytes(batch[:8], "big")
            if base in stored and self.observing.log.snapshot_id is None:
                assert bytes(batch) == stored[base]
        assert not damage


TestObserverHistory = ObserverHistory.TestCase
TestObserverHistory.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
