"""A process that stood still longer than a session leads nothing by what it knew."""

import threading
from pathlib import Path

from batches import batch
from joined_broker import JoinedBroker
from patience import PATIENCE_S, eventually
from running_broker import NOW_MS
from scripted_controller import ScriptedController

from horolog.broker.cluster.waking import Waking
from horolog.clock import ManualClock
from horolog.errors import ErrorCode
from horolog.wire import ApiKey


class Lab:
    def __init__(self) -> None:
        self.now_s, self.known_s = 100.0, 99.0
        self.waking = Waking(9.0, lambda: self.known_s, lambda: self.now_s)

    def look(self, after_s: float) -> bool:
        self.now_s += after_s
        return self.waking.look()


def test_without_a_standstill_old_metadata_are_good_enough() -> None:
    lab = Lab()
    assert all(lab.look(8.9) for _ in range(5)), "the controllers are away, the process is not"


def test_after_a_standstill_only_what_was_asked_since_counts() -> None:
    lab = Lab()
    assert not lab.look(9.1)
    assert not lab.look(0.1)
    lab.known_s = 109.0  # asked before, and answered afterwards
    assert not lab.look(0.1)
    lab.known_s = 109.2
    assert lab.look(0.1)
    assert lab.look(8.0)


def test_a_broker_that_wakes_takes_nothing_before_it_has_heard_who_leads(
    tmp_path: Path,
) -> None:
    hears = threading.Event()
    with (
        ScriptedController() as quorum,
        JoinedBroker(tmp_path / "1", quorum, clock=ManualClock(NOW_MS)) as broker,
    ):
        quorum.create_topic("t", [[1]])
        assert eventually(lambda: broker.produce("t", batch(NOW_MS)).error_code == 0)
        quorum.answers[ApiKey.FETCH] = lambda request, usual: hears.wait(PATIENCE_S) and usual()
        fetches = len(quorum.asked(ApiKey.FETCH))
        quorum.tick()
        assert eventually(lambda: len(quorum.asked(ApiKey.FETCH)) > fetches)
        waking = broker.node.membership.waking
        waking.seen_s -= 10.0
        for acks in (1, -1):
            answer = broker.produce("t", batch(NOW_MS), acks=acks)
            assert answer.error_code == ErrorCode.not_leader_or_follower
        assert broker.fetch("t").error_code == ErrorCode.not_leader_or_follower
        hears.set()
        assert eventually(lambda: broker.fetch("t").error_code == 0)
        assert broker.count("t") == 1
