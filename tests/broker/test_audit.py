"""The log of an audit is limited, and says what it leaves out."""

import asyncio
import logging
from collections.abc import Callable

import pytest
from stepped_loop import SteppedLoop

from horolog.broker import AuditLog

Told = Callable[[], list[str]]


class StillLoop(SteppedLoop):
    """Time passes where a test says so alone."""

    def time(self) -> float:
        return 1_000.0 + self._ahead_s


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    """The lines since it was called before."""
    caplog.set_level(logging.INFO, "audited")

    def told() -> list[str]:
        lines = [one.getMessage() for one in caplog.records]
        caplog.clear()
        return lines

    return told


def test_a_thousand_lines_are_written_a_second_and_ten_of_each(told: Told) -> None:
    audit, loop = AuditLog(logging.getLogger("audited")), StillLoop()

    async def write(*lines: str) -> list[str]:
        for line in lines:
            audit.write(logging.INFO, line)
        return told()

    async def pass_by() -> list[str]:
        await loop._advance(1)
        return told()

    async def body() -> None:
        assert await write(*["a"] * 10, "b") == ["a"] * 10 + ["b"]
        assert await write(*["a"] * 20) == []
        others = [f"{number}" for number in range(3_000)]
        assert await write(*others) == others[:989]
        assert await write("a", "b", "c", "0") == []
        # Nothing has to come after it for the rest to be told.
        assert await pass_by() == [
            "21 times more in a second: a",
            "2012 further lines in a second were left out",
            "1 times more in a second: b",
            "1 times more in a second: 0",
        ]
        assert await write(*others, "a") == others[:1_000]
        assert await pass_by() == ["2001 further lines in a second were left out"]
        assert await pass_by() == []
        assert await write("a") == ["a"]

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(body())
