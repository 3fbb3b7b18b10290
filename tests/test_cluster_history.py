"""The lab's checks of a cluster's history: each kind of loss is found."""

from batches import batch
from cluster_history import ClusterHistory, End, Stored, Written, problems_of_append_times
from cluster_soak import problems_of_sequences

T = ("t", 0)


def stored(*written: Written) -> list[Stored]:
    return [Stored(offset, 1000 + offset, it) for offset, it in enumerate(written)]


def written(count: int, writer: str = "w") -> list[Written]:
    return [Written(writer, number) for number in range(count)]


def history(*acknowledged: Written) -> ClusterHistory:
    made = ClusterHistory()
    made.once.add("w")
    for offset, it in enumerate(acknowledged):
        made.acknowledge(T, offset, it, 1000)
    return made


def test_values_are_read_as_they_were_written() -> None:
    assert Written.of(Written("w", 3, "t-1").value) == Written("w", 3, "t-1")


def test_what_is_as_it_was_told_is_right() -> None:
    its = written(3)
    assert history(*its).problems({T: stored(*its, Written("w", 3))}, {}) == []


def test_lost_record_is_found() -> None:
    assert len(history(*written(3)).problems({T: stored(*written(2))}, {})) == 1
    assert history(*written(1)).problems({}, {}) == ["('t', 0) is gone"]


def test_lost_record_that_was_acknowledged_without_an_offset_is_found() -> None:
    for offset in (None, -1):
        made = history()
        made.acknowledge(T, offset, Written("w", 0), -1)
        assert made.problems({T: stored(Written("w", 0))}, {}) == []
        assert len(made.problems({T: []}, {})) == 1


def test_record_at_another_offset_is_found() -> None:
    assert history(Written("x", 0)).problems({T: stored(Written("y", 0), Written("x", 0))}, {})


def test_doubled_and_reordered_records_of_idempotent_writers_are_found() -> None:
    one, two = written(2)
    assert len(history().problems({T: stored(one, one)}, {})) == 1
    assert len(history().problems({T: stored(two, one)}, {})) == 1
    sent = Written("x", 0, "x")
    assert len(ClusterHistory().problems({T: stored(sent, sent)}, {})) == 1
    other = Written("other", 1)
    assert history().problems({T: stored(other, other)}, {}) == []


def test_record_that_its_producer_sends_anew_is_none_of_the_brokers() -> None:
    one, two, three = written(3)
    its = stored(one, two, one, two, three)
    anew = {0: 1, 1: 1, 2: 2, 3: 2, 4: 2}
    made = history()
    assert made.problems({T: its}, {}, {T: anew}) == []
    assert made.problems({T: its}, {}, {T: dict.fromkeys(anew, 1)})
    made.acknowledge(T, 0, one, 1000)  # is not sent anew by any client
    assert made.problems({T: its}, {}, {T: anew})


def test_sequence_that_is_lacking_or_there_twice_is_found() -> None:
    def log(*sent: tuple[int, int, int]) -> dict[int, bytes]:
        made = {}
        for at, (epoch, first, count) in enumerate(sent):
            of = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": first}
            made[10 * at] = batch(*[1] * count, base_offset=10 * at, **of)
        return made

    for right in ([], [(0, 0, 3), (0, 3, 1), (1, 0, 1), (1, 1, 1)], [(5, 0, 1)]):
        assert list(problems_of_sequences(T, log(*right))) == []
    for wrong in (
        [(0, 0, 1), (0, 0, 1)],
        [(0, 0, 1), (0, 2, 1)],
        [(0, 1, 1)],
        [(1, 0, 1), (0, 1, 1)],
        [(0, 0, 1), (1, 1, 1)],
    ):
        assert list(problems_of_sequences(T, log(*wrong)))


def test_record_that_was_read_and_vanished_is_found() -> None:
    made = history()
    made.see(T, 1, Written("w", 1))
    assert len(made.problems({T: stored(Written("w", 0))}, {})) == 1
    made.see(T, 1, Written("w", 2))
    assert "to another" in made.wrong[0]


def test_transactions_are_whole_or_not_there() -> None:
    made = ClusterHistory()
    a, b = Written("w", 0, "x"), Written("w", 1, "x")
    for it in (a, b):
        made.send(T, it)
    for how, readable, is_wrong in (
        (End.COMMITTED, [a, b], False),
        (End.COMMITTED, [a], True),
        (End.COMMITTED, [a, b, b], True),
        (End.ABORTED, [], False),
        (End.ABORTED, [a, b], True),
        (End.UNKNOWN, [], False),
        (End.UNKNOWN, [a, b], False),
        (End.UNKNOWN, [b], True),
    ):
        made.end("x", how)
        assert bool(made.problems({}, {T: stored(*readable)})) == is_wrong, (how, readable)


def test_append_time_that_goes_back_is_found() -> None:
    its = [Stored(0, 5, Written("w", 0)), Stored(1, 4, Written("w", 1))]
    assert len(problems_of_append_times({T: its})) == 1
    assert problems_of_append_times({T: its[:1]}) == []


def test_number_of_an_aborted_record_that_a_client_gives_to_another_is_no_loss() -> None:
    """The broker took the second for a repeat. A lost record leaves a gap of numbers."""
    before, lost, after = (Written(f"w.{at}", 0, f"w.{at}") for at in range(3))

    def problems(*there: Written, epochs: tuple[int, ...] = (0, 0)) -> list[str]:
        made = ClusterHistory()
        made.send(T, lost)
        made.end("w.1", End.COMMITTED)
        its = stored(*there)
        return made.problems({T: its}, {T: []}, {T: dict(enumerate(epochs))})

    assert problems(before, after) == []
    assert len(problems(before)) == len(problems(after)) == len(problems()) == 1
    assert len(problems(before, after, epochs=(0, 1))) == 1, "numbers began anew"
    assert len(problems(before, Written("x.2", 0, "x.2"))) == 1
