"""Broker for tests, in the test's process. It leaves no files behind."""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

from horolog.broker.background_tasks import Expired
from horolog.broker.faults import Faults
from horolog.broker.new_topics import NewTopic
from horolog.broker.service import Service
from horolog.clock import Duration, ManualClock
from horolog.config import Settings, host_port
from horolog.testing.failures import BrokerFailed
from horolog.testing.service_thread import ServiceThread
from horolog.testing.settings import as_text, for_tests
from horolog.testing.users import Users

_BROKERS: Final[WeakSet["Broker"]] = WeakSet()


def clear_all_faults() -> None:
    """Remove the faults of all brokers of this process."""
    for broker in list(_BROKERS):
        with suppress(RuntimeError, CancelledError):  # a broker that stops meanwhile has none
            broker.clear_faults()


class Broker:
    """Kafka broker with a clock that tests can move.

        with Broker({"num.partitions": 3}) as broker:
            broker.create_topic("clicks", settings={"retention.ms": 3_600_000})
            Producer({"bootstrap.servers": broker.bootstrap_servers})
            broker.clock.advance("2h")
            broker.expire()

    It listens on a free port of 127.0.0.1, works on a thread of its own, and keeps its log
    in a temporary directory, which `close` removes. `start`, `stop` and `kill` may follow
    each other; the port and the records stay the same.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        clock: ManualClock | None = None,
        log_dir: Path | str | None = None,
        users: Mapping[str, str | Iterable[str]] | None = None,
    ) -> None:
        """Prepare a broker, without starting it.

        Args:
            settings: settings under Kafka's names, which override those of `for_tests`.
            clock: the broker's clock; by default a new one that follows the system's until moved.
            log_dir: log directory, which is kept; by default a temporary one.
            users: users with their rights, as `{"alice": "read topic:clicks"}`. The broker has TLS
                then, and asks for a login. None: it does neither.

        Raises:
            Misconfigured: a right has another form.
            MissingExtra: it is to have users, and cryptography is not installed.
        """
        self._users = None if users is None else Users(users)
        self.clock = ManualClock.following() if clock is None else clock
        of_users = {} if self._users is None else self._users.settings()
        self._settings = for_tests({**of_users, **as_text(settings or {})})
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: ServiceThread | None = None
        self._bootstrap_servers: str | None = None
        self._faults = Faults()
        _BROKERS.add(self)

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        return f"<horolog.testing.Broker {self._bootstrap_servers}, {state}, {self.clock!r}>"

    # --- what a test asks for ---------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, `127.0.0.1:PORT`; it does not change between `stop` and `start`."""
        assert self._bootstrap_servers is not None, "the broker was never started"
        return self._bootstrap_servers

    @property
    def ca_file(self) -> Path:
        """Certificate (PEM) of the authority that signed the broker's; of one with users."""
        return self._with_users().ca_file

    def password(self, user: str) -> str:
        """Return the password of a user, a random one."""
        return self._with_users().passwords[user]

    def librdkafka(self, user: str) -> dict[str, str]:
        """Return settings of confluent-kafka, and all on librdkafka, for a user."""
        its = self._with_users().librdkafka(user)
        return {"bootstrap.servers": self.bootstrap_servers, **its}

    def properties(self, user: str) -> dict[str, str]:
        """Return properties of Java clients, and of horolog's, for a user."""
        its = self._with_users().properties(user)
        return {"bootstrap.servers": self.bootstrap_servers, **its}

    def _with_users(self) -> Users:
        assert self._users is not None, 'give the broker users: Broker(users={"alice": ...})'
        return self._users

    @property
    def log_dir(self) -> Path:
        """Log directory, in Apache Kafka's format."""
        if self._log_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="horolog-")
            self._log_dir = Path(self._temporary.name)
        return self._log_dir

    @property
    def is_running(self) -> bool:
        """True if the broker accepts connections."""
        return self._thread is not None

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic, with settings under Kafka's names.

        It exists when this returns.

        Raises:
            RequestRefused: there is one already, or a setting makes no sense.
        """
        new = NewTopic(name=name, partitions=partitions, overrides=as_text(settings or {}))
        self._running().call(lambda service: service.broker.controller.create_topic(new))

    def expire(self) -> Expired:
        """Run everything that is due by the clock, wait for it, and return what was done.

        Retention, removal of files deleted `file.delete.delay.ms` ago, expiry of committed
        offsets, of idempotent producers and of transactional ids. Transactions that have timed out
        are aborted, and what is due is compacted, as when the clock is moved forward. Nothing of
        this happens by itself here.
        """
        return self._running().call(lambda service: service.background_tasks.expire())

    # --- faults (docs/testing.md) -----------------------------------------------------

    def fail(
        self,
        api: str | int,
        error: str | int,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Answer the next requests of an API with an error, and do nothing else.

        Args:
            api: Kafka's name of the API, as "Produce", or its number.
            error: Kafka's name of the error, as "NOT_LEADER_OR_FOLLOWER", or its number.
            times: how many requests; None until `clear_faults`.
            topic: only requests that name this topic; as a whole, also if they name others.
            partition: only requests that name this partition.

        Raises:
            ValueError: an API, an error or a number that does not exist, or a topic or partition
                for an API whose requests name none.
        """
        self._set(
            lambda faults: faults.fail(api, error, times=times, topic=topic, partition=partition)
        )

    def delay(
        self,
        api: str | int,
        by: Duration,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Do the next requests at once, and answer them later, in real time; see `fail`.

        Args:
            by: "2s", a `timedelta`, or milliseconds.
        """
        self._set(
            lambda faults: faults.delay(api, by, times=times, topic=topic, partition=partition)
        )

    def disconnect(
        self,
        api: str | int,
        after_bytes: int = 0,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Do the next requests, and close the connection within the answer; see `fail`.

        Args:
            after_bytes: how many bytes of the answer are sent, with its length of four bytes.
        """
        self._set(
            lambda faults: faults.disconnect(
                api, after_bytes=after_bytes, times=times, topic=topic, partition=partition
            )
        )

    def lose_answer(
        self,
        api: str | int,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Do the next requests, and close the connection instead of answering; see `fail`."""
        self._set(
            lambda faults: faults.lose_answer(api, times=times, topic=topic, partition=partition)
        )

    def not_leader(self, topic: str) -> None:
        """Answer the next Produce or Fetch of a topic with NOT_LEADER_OR_FOLLOWER, undone."""
        self._set(lambda faults: faults.not_leader(topic))

    def pause(self) -> None:
        """Begin no more requests until `resume`; connections are still accepted."""
        self._set(lambda faults: faults.pause())

    def resume(self) -> None:
        """Begin the requests that came meanwhile, in their order."""
        self._set(lambda faults: faults.resume())

    def clear_faults(self) -> None:
        """Remove all faults, and resume; the end of each pytest test does it, too."""
        self._set(lambda faults: faults.clear())

    def _set(self, change: Callable[[Faults], None]) -> None:
        """Change the faults in the thread that uses them."""

        async def changing(service: Service) -> None:
            change(self._faults)

        if self._thread is None:
            change(self._faults)
        else:
            self._thread.call(changing)

    # --- start and stop ---------------------------------------------------------------

    def start(self) -> Self:
        """Start accepting connections, unless the broker is running.

        Raises:
            Misconfigured: a setting that makes no sense, or the port was taken meanwhile.
        """
        if self._thread is not None:
            return self
        given = {**self._settings, "log.dirs": str(self.log_dir)}
        protocol = "PLAINTEXT" if self._users is None else "SASL_SSL"
        if self._bootstrap_servers is not None:
            given["listeners"] = f"{protocol}://{self._bootstrap_servers}"
        given.setdefault("listeners", f"{protocol}://127.0.0.1:0")
        self._thread = ServiceThread(Settings(given), self.clock, self._faults)
        if self._users is not None and self._bootstrap_servers is None:  # later it has them
            self._thread.call(self._users.put)
        endpoint = self._thread.endpoint
        self._bootstrap_servers = host_port(endpoint.host, endpoint.port)
        return self

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does, unless the broker is stopped.

        Raises:
            BrokerFailed: it had a bug of its own since it was started.
        """
        self._end(clean=True)

    def kill(self) -> None:
        """Stop as `kill -9` does, without ending the process; `start` recovers the log.

        Raises:
            BrokerFailed: it had a bug of its own since it was started.
        """
        self._end(clean=False)

    def close(self) -> None:
        """Stop, and remove the log unless its directory was given.

        Raises:
            BrokerFailed: it had a bug of its own since it was started.
        """
        try:
            self.stop()
        finally:
            if self._users is not None:
                self._users.close()
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary = self._log_dir = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except BrokerFailed as failed:  # likely why the test failed: reported with it, not instead
            error.add_note(str(failed))

    def _end(self, *, clean: bool) -> None:
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        thread.end(clean=clean)
        failures = thread.take_failures()
        if failures is not None:
            raise BrokerFailed(f"the broker had a bug of its own:\n{failures}")

    def _running(self) -> ServiceThread:
        assert self._thread is not None, "the broker is not running: call start()"
        return self._thread
