"""A simulation of retention beside a broker that has the same settings and a turned clock."""

from collections.abc import Iterable, Mapping

from running_broker import ANY_TIME, RunningBroker

from horolog.clock import ManualClock
from horolog.config import Settings
from horolog.record import LogRecord, build_batch
from horolog.storage import Arrival, Simulation, SimulationOutcome

Deleted = tuple[int, int, int, str]
"""When, base offset, bytes and reason."""


def deleted_by_both(
    broker: RunningBroker,
    clock: ManualClock,
    topic: str,
    given: Mapping[str, str],
    arrivals: Iterable[tuple[int, list[int], int]],
    *,
    check_ms: int,
    rest_ms: int,
) -> tuple[SimulationOutcome, list[Deleted]]:
    """What a simulation finds, and what the broker deletes, of a topic with these settings.

    Args:
        broker: with that clock, and no checks of its own.
        clock: not later than the first arrival.
        topic: made here.
        given: settings under Kafka's names.
        arrivals: append time, create times (-1 for none), and bytes of each value.
        check_ms: between checks of retention.
        rest_ms: how long time passes after the last arrival.
    """
    overrides = {name.replace(".", "_"): value for name, value in given.items()}
    broker.create_topic(topic, 1, **{**ANY_TIME, **overrides})
    simulation = Simulation(Settings({}).topic_config(given), check_ms)
    deleted: list[Deleted] = []
    due_ms = held = most = offset = 0

    def run_to(ms: int) -> None:
        nonlocal due_ms, held
        while due_ms <= ms:
            clock.advance(due_ms - clock.now_ms())
            for name, gone in broker.run(broker.service.background_tasks.run_retention()):
                if str(name) == f"{topic}-0":
                    deleted.append((due_ms, gone.base_offset, gone.size, gone.reason))
                    held -= gone.size
            due_ms += check_ms

    append_ms = clock.now_ms()
    for append_ms, times, size in arrivals:
        due_ms = due_ms or append_ms + check_ms
        batch = build_batch([LogRecord(time, None, bytes(size)) for time in times])
        run_to(append_ms)
        clock.advance(append_ms - clock.now_ms())
        broker.append(topic, batch)
        held += len(batch)
        most = max(most, held)
        real = [time for time in times if time >= 0]
        oldest, newest = min(real, default=None), max(real, default=None)
        last = offset + len(times) - 1
        simulation.arrive(Arrival(offset, last, len(batch), len(times), oldest, newest, append_ms))
        offset = last + 1
    run_to(append_ms + rest_ms)
    simulation.run_until(append_ms + rest_ms)
    found = simulation.outcome()
    assert (found.held_bytes, found.most_held_bytes) == (held, most)
    assert found.held_segments == sum(each.size > 0 for each in broker.log(topic).segments)
    return found, deleted


def as_deleted(found: SimulationOutcome) -> list[Deleted]:
    """The deletions of a simulation."""
    return [(each.at_ms, each.base_offset, each.size, each.reason) for each in found.deletions]
