"""How fast does a broker take records one by one? Requests a second, median and p99."""

from collections.abc import Callable, Mapping

from bench import harness
from bench.produce import measured
from bench.sides import Side


def latency(requests: int) -> Callable[[Side], Mapping[str, float]]:
    """One request at a time over one connection."""

    def measure(side: Side) -> Mapping[str, float]:
        return _requests(measured(side, "raw_latency", requests=requests, size=100))

    return measure


def pipelined(requests: int) -> Callable[[Side], Mapping[str, float]]:
    """Five requests under way, a client that does nothing else."""

    def measure(side: Side) -> Mapping[str, float]:
        return _requests(measured(side, "raw_produce", requests=requests, size=100, records=1))

    return measure


def librdkafka(requests: int) -> Callable[[Side], Mapping[str, float]]:
    """The usual client, told to send every record at once."""
    settings = {"batch.num.messages": 1, "linger.ms": 0}

    def measure(side: Side) -> Mapping[str, float]:
        return _requests(
            measured(side, "librdkafka_produce", records=requests, size=100, settings=settings)
        )

    return measure


def _requests(numbers: Mapping[str, float]) -> Mapping[str, float]:
    done = numbers.get("requests", numbers["records"])
    return {**numbers, "requests/s": done / numbers["seconds"]}


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    harness.machine()
    share = 3 if asked.quick else 1
    alone, many = latency(15_000 // share), 150_000 // share
    with harness.both_sides(asked) as sides:
        taken = harness.take(alone, sides, asked)
        for figure in ("p50_ms", "p99_ms"):
            row = harness.Row(
                "unbatched, one at a time", alone, figure, "", "2x", higher_is_better=False
            )
            harness.report(row, taken, {side.name: side.version for side in sides}, asked)
        for work, measure in (("5 under way", pipelined), ("librdkafka", librdkafka)):
            row = harness.Row(f"unbatched, {work}", measure(many), "requests/s", "", "2x")
            harness.compare(row, sides, asked)


if __name__ == "__main__":
    main()
