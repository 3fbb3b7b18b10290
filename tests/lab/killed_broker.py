"""A broker that is killed and started again, over and over, while something loads it.

What loads it, and what must be true after a kill, is for who makes a class of this
(`soak`, `transaction_soak`).
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from broker_nursery import BornBroker, Nursery


class KilledBroker:
    """One run. `close` ends it."""

    SETTINGS: Mapping[str, object] = {}
    SAYS: Mapping[str, str] = {}
    """What is counted of what a broker logs: by the name of the count, the words."""

    def __init__(
        self,
        nursery: Nursery,
        directory: Path,
        seed: int,
        *,
        ways_to_die: Iterable[str | None] | None = None,
    ) -> None:
        self.seed: Final = seed
        self.rng = random.Random(seed)
        self.directory = directory
        self.log_dir = directory / "log"
        self.counts: Counter[str] = Counter()
        self._nursery = nursery
        self._said = directory / "said"
        self._ways = iter(self._chance() if ways_to_die is None else ways_to_die)
        self._dies: str | None = None
        self._port = 0
        self.broker = self._start()
        try:
            address = self.broker.await_ready()
            assert address is not None, self.broker.said
            self.address = address
            self._port = int(address.rpartition(":")[2])
        except BaseException:
            self.broker.end()
            raise

    def _start(self, dies: str | None = None) -> BornBroker:
        self._dies = dies
        arguments = serve(self.log_dir, self._port, self.SETTINGS)
        return BornBroker(self._nursery, self._said, arguments, dies)

    def _start_and_wait(self) -> None:
        """Start again, to live."""
        self.broker = self._start()
        assert self.broker.await_ready() is not None, self.broker.said

    def run(self, kills: int, *, progress: bool = False) -> None:
        """Kill it so often; ends sooner if there are no more ways to die."""
        while self.counts["kills"] < kills:
            self._one_round()
            try:
                self._come_up()
            except StopIteration:
                break
            self._has_come_up()
            if progress:
                say(f"\r{self.summary}")
        self.finish()

    @property
    def summary(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))

    def _come_up(self) -> None:
        """Start again until it serves; now and then it is killed while it starts."""
        while True:
            dies = next(self._ways)
            self.broker = self._start(dies)
            if dies is None and self.rng.random() < 0.1:
                time.sleep(self.rng.random() * 0.2)
                address = self.broker.ready
            else:
                address = self.broker.await_ready()
            if address is not None:
                return
            self.counts["kills at start"] += 1
            self._take_down()

    def _take_down(self) -> None:
        """Kill it, unless it has died."""
        code = self.broker.end(signal.SIGKILL)
        assert code == -signal.SIGKILL, f"exit code {code}: {self.broker.said[-4000:]}"
        self.counts["kills"] += 1
        self._listen()

    def _listen(self) -> None:
        """Look at what it has logged since it was started."""
        said = self.broker.said
        assert "Traceback" not in said, said[-6000:]
        assert "a bug" not in said, said[-6000:]
        for name, words in self.SAYS.items():
            self.counts[name] += said.count(words)

    def _one_round(self) -> None:
        """Load it until it dies."""
        raise NotImplementedError

    def _has_come_up(self) -> None:
        """After each start."""

    def _chance(self) -> Iterator[str | None]:
        """How it dies, each time; None from outside."""
        raise NotImplementedError

    def finish(self) -> None:
        """End the load, and look at everything."""
        raise NotImplementedError

    def close(self) -> None:
        if not self.broker.has_ended:
            self.broker.end()


Run = TypeVar("Run", bound=KilledBroker)


@contextmanager
def reported(run: Run) -> Iterator[Run]:
    """A run that is closed; what fails in it says how to do the same again."""
    try:
        yield run
    except AssertionError as error:
        raise AssertionError(f"SEED={run.seed}, {run.summary}") from error
    finally:
        run.close()


def serve(log_dir: Path, port: int, settings: Mapping[str, Any]) -> list[str]:
    """The arguments of a broker."""
    arguments = ["serve", "-v", "--port", str(port), "--log-dir", str(log_dir)]
    for name, value in settings.items():
        arguments += ["--set", f"{name}={value}"]
    return arguments


def say(text: str) -> None:
    """On the screen, during a long run."""
    sys.stdout.write(text)
    sys.stdout.flush()
