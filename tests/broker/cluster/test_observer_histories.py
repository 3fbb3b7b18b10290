"""An observer of the metadata log has what the quorum has committed, whatever happens."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from observing import Observing, QuorumLink, state_of
from scripted_quorum import QuorumLog

from horolog.metadata import KafkaForm
from horolog.schemas import metadata as m
from horolog.schemas.metadata import Record
from horolog.storage import Files


class ObserverHistory:
    """A quorum that elects, loses what is not committed, and makes snapshots; and an observer."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.quorum = QuorumLog([100, 101])
        self.quorum.lead(100)
        self.link = QuorumLink(self.quorum)
        self.numbers = 0
        self.states = {0: state_of(self.quorum.image)}
        self.note()
        self.observing = self.start()

    def start(self) -> Observing:
        return Observing(Path(self.directory), self.link)

    def note(self) -> None:
        """Remember the state after the records so far, of which no transaction is open."""
        self.states[self.quorum.end] = deepcopy(state_of(self.quorum.image))

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

    def hold(self) -> None:
        self.quorum.hold()

    def release(self) -> None:
        self.quorum.release()

    def lead(self, node: int, lose_tail: bool) -> None:
        if lose_tail and self.quorum.start:
            return  # the lab cannot tell the image of such a tail
        if lose_tail:
            end = self.quorum.high_watermark
            self.states = {offset: it for offset, it in self.states.items() if offset <= end}
        self.quorum.lead(node, lose_tail=lose_tail)
        self.note()

    def lose(self, count: int, fetches: int, node: int) -> None:
        """Lose records that the observer may have, and elect a leader without them."""
        self.hold()
        self.append(count, in_transaction=count == 1)
        for _ in range(fetches):
            self.fetch_once()
        self.lead(node, lose_tail=True)

    def snapshot(self, deletes_log: bool) -> None:
        if self.quorum.high_watermark == self.quorum.end > 0:
            self.quorum.snapshot(deletes_log=deletes_log)

    def answer_in_parts(self, part_bytes: int) -> None:
        self.link.part_bytes = part_bytes

    def fetch_once(self) -> None:
        self.observing.observer.fetch()

    def fetch_all(self) -> None:
        self.observing.fetch()

    def make_own_snapshot(self) -> None:
        self.observing.observer.snapshot()

    def restart(self) -> None:
        self.observing.log.close()
        self.observing = self.start()

    def lose_power(self, lost: int, junk: bool) -> None:
        self.observing.log.close()
        directory = Path(self.directory) / "__cluster_metadata-0"
        newest = max(directory.glob("*.log"))
        data = newest.read_bytes()
        data = data[: max(0, len(data) - lost)] + (b"\xff" * lost if junk else b"")
        newest.write_bytes(data)
        (directory / "quorum-state").unlink(missing_ok=True)
        self.observing = self.start()

    def check(self) -> None:
        """What is published is committed, and ends where a transaction ends."""
        offset = self.observing.offset
        assert offset <= self.quorum.high_watermark
        assert self.observing.state == self.states[offset]

    def become_quiet(self) -> None:
        self.quorum.release()
        self.observing.fetch()
        assert self.observing.offset == self.quorum.high_watermark
        assert self.observing.state == state_of(self.quorum.image)
        stored = {batch.base: batch.data for batch in self.quorum.batches}
        damage: list[object] = []
        form = KafkaForm(Files(read_only=True), self.directory)
        for batch in form.kept(damage):
            base = int.from_bytes(batch[:8], "big")
            if base in stored and self.observing.log.snapshot_id is None:
                assert bytes(batch) == stored[base]
        assert not damage


FETCH_ONCE, FETCH_ALL = ("fetch_once",), ("fetch_all",)
steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.booleans()),
    st.sampled_from([FETCH_ONCE, FETCH_ALL]),
    st.sampled_from([FETCH_ONCE, FETCH_ALL, ("hold",), ("release",)]),
    st.tuples(st.just("lead"), st.sampled_from([100, 101]), st.booleans()),
    st.tuples(st.just("lose"), st.integers(1, 3), st.integers(0, 4), st.sampled_from([100, 101])),
    st.one_of(
        st.tuples(st.just("snapshot"), st.booleans()),
        st.sampled_from([("make_own_snapshot",), ("restart",)]),
        st.tuples(st.just("answer_in_parts"), st.integers(1, 1000)),
        st.tuples(st.just("lose_power"), st.integers(0, 300), st.booleans()),
        st.just(("become_quiet",)),
    ),
)


@given(st.lists(steps, min_size=20, max_size=40))
@settings(max_examples=40)
def test_what_is_published_is_committed_and_in_the_end_equal(
    steps: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory(prefix="horolog-observer-") as directory:
        history = ObserverHistory(directory)
        for name, *arguments in [*steps, ("become_quiet",)]:
            getattr(history, name)(*arguments)
            history.check()
        history.observing.log.close()
