"""What each setting of a broker that follows changes; the source says anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from patience import eventually
from scripted_broker import Silence
from scripted_source import Answer, ScriptedSource
from setting_checks import of_broker
from settings_lab import Lab

from horolog.record import LogRecord, build_batch
from horolog.wire import ApiKey


@contextmanager
def following(lab: Lab, *topics: str) -> Iterator[ScriptedSource]:
    """Have the broker follow a source with these topics, in each of which there is a record."""
    with ScriptedSource(*topics) as source:
        for topic in source.topics.values():
            batch = build_batch(
                [LogRecord(lab.clock.now_ms(), None, b"v")], leader_epoch=topic.epoch
            )
            topic.batches = [batch]
        lab.broker.restart(horolog_follow=source.address)
        try:
            yield source
        finally:
            lab.broker.stop()


def first_fetch(lab: Lab, of: Callable[[object], int]) -> int:
    with following(lab, "t") as source:
        assert eventually(lambda: bool(source.asked(ApiKey.FETCH)))
        return of(source.asked(ApiKey.FETCH)[0])


@of_broker("replica.fetch.max.bytes", {"1048576": 1_048_576, "5000": 5_000})
def bytes_of_a_partition_that_are_asked_for(lab: Lab) -> int:
    return first_fetch(lab, lambda asked: asked.topics[0].partitions[0].partition_max_bytes)  # type: ignore[attr-defined]


@of_broker("replica.fetch.response.max.bytes", {"10485760": 10_485_760, "7000": 7_000})
def bytes_that_are_asked_for(lab: Lab) -> int:
    return first_fetch(lab, lambda asked: asked.max_bytes)  # type: ignore[attr-defined]


@of_broker("replica.fetch.min.bytes", {"1": 1, "100": 100})
def bytes_that_are_waited_for(lab: Lab) -> int:
    return first_fetch(lab, lambda asked: asked.min_bytes)  # type: ignore[attr-defined]


@of_broker("replica.fetch.wait.max.ms", {"500": True, "900": False})
def whether_the_leader_waits_half_a_second_at_most(lab: Lab) -> bool:
    return first_fetch(lab, lambda asked: asked.max_wait_ms) <= 500  # type: ignore[attr-defined]


@of_broker("replica.fetch.backoff.ms", {"0": True, "1000000": False})
def whether_what_failed_is_asked_for_again_at_once(lab: Lab) -> bool:
    with following(lab, "bad", "good") as source:
        asked = 0

        def tamper(topic: str, answer: Answer) -> Answer:
            nonlocal asked
            if topic != "bad":
                return answer
            asked += 1
            return answer | {"error_code": 56, "records": b""}

        source.tamper[ApiKey.FETCH] = tamper
        assert eventually(lambda: asked > 0)
        before = len(source.asked(ApiKey.FETCH))
        assert eventually(lambda: len(source.asked(ApiKey.FETCH)) > before + 50)
        return asked > 2


@of_broker("replica.socket.timeout.ms", {"20": True, "1000000": False})
def whether_a_silent_leader_is_given_up(lab: Lab) -> bool:
    with following(lab, "t") as source:
        source.broker.answers = {**source.broker.answers, ApiKey.FETCH: Silence()}
        assert eventually(lambda: bool(source.asked(ApiKey.FETCH)))
        looks = len(source.asked(ApiKey.METADATA))
        eventually(
            lambda: (
                len(source.asked(ApiKey.FETCH)) > 1
                or len(source.asked(ApiKey.METADATA)) > looks + 2
            )
        )
        return len(source.asked(ApiKey.FETCH)) > 1


@of_broker("horolog.follow.log.start", {"true": 1, "false": 0})
def start_of_a_log_of_which_the_source_has_deleted_records(lab: Lab) -> int:
    with following(lab, "t") as source:
        topic = source.topics["t"]
        partitions = lab.broker.broker.partitions
        assert eventually(lambda: ("t", 0) in partitions and partitions["t", 0].log.high_watermark)
        asked = len(source.asked(ApiKey.FETCH))
        topic.start = 1
        assert eventually(lambda: len(source.asked(ApiKey.FETCH)) > asked + 50)
        return int(partitions["t", 0].log.log_start_offset)
