"""Transactions of real clients against a broker that is killed, and what must be true of them.

Producers of both flows of KIP-890 write over several partitions of several topics; others consume
in a group, produce and commit offsets in transactions. Clients are killed, stopped and started
again, and so is the broker: by chance, at a step that changes the disk, and between the record of
the coordinator and the markers, between markers of different partitions, and before Complete.
Beside them topics are compacted, rolled, and shortened by DeleteRecords and by retention.

What clients note in their journals (transaction_clients.py) is held against what consumers of
committed records are given in the end.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import confluent_kafka
import transaction_clients
from broker_nursery import BornBroker, Nursery, pause_s
from killed_broker import KilledBroker, serve
from patience import eventually
from raw_connection import RawConnection, delete_fields, fetch_fields, lookup_fields, topic_fields
from transaction_clients import (
    COMPACTED,
    GROUP,
    INPUT,
    OUTPUT,
    PARTITIONS,
    TRIMMED,
    group_of,
    quick,
)

from horolog.client import Client as HorologClient
from horolog.record import BatchHeader, iter_headers, read_marker, read_records
from horolog.storage import TRANSACTION_STATE, Files, Finding, Severity, Verification, read_aborted
from horolog.wire import ApiKey, PromotedEntry

PATIENCE_S = 300
TIMEOUT_MS = 2_000
# What a broker lives for: this many transactions that clients say have ended, or fewer.
ENDED_A_LIFE = 60
OUTLIVED = 600
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.delete.retention.ms": 500,
    "log.cleaner.min.cleanable.ratio": 0.05,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 300,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.segment.bytes": 20_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.segment.bytes": 20_000,
}
TOPICS: Mapping[str, Mapping[str, str]] = {
    INPUT: {"retention_ms": "-1"},
    OUTPUT: {"retention_ms": "-1"},
    COMPACTED: {"cleanup_policy": "compact", "delete_retention_ms": "500"},
    TRIMMED: {"retention_ms": "-1", "retention_bytes": "30000"},
}

Where = tuple[str, int]

CUT = re.compile(
    r"a transaction of '([^']*)' was committed at the source: records of it from offset (\d+) on "
    r"may not have arrived"
)
"""What a promotion says of a partition where a committed transaction may be missing in part."""

OUTRUN = re.compile(
    r"a transaction of '([^']*)' was (?:ended at the source after its last state that came"
    r"|aborted, as no end and no state of it came, and may be committed at the source): "
)
"""What it says of one that may be missing in other partitions."""

PRODUCER = "producer id "
"""In front of the producer id where the transactional id is not known."""

LOGGED = re.compile(r"(\w+)-(\d+) was promoted: (.*)")
"""A sentence of a promotion in the log."""

_ENDS = (-signal.SIGKILL, -signal.SIGALRM, transaction_clients.FENCED)
"""Exit codes of clients that another life has to follow."""


class Client:
    """One kind of client under one transactional id, one process after the other."""

    def __init__(self, directory: Path, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.journal = directory / f"{name}.journal"
        self.journal.touch()
        self._said = directory / f"{name}.said"
        self.life = 0
        self._noted_in = 0  # the last life that has noted anything
        self._read = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: list[subprocess.Popen[bytes]] = []

    def start(self, address: str, seed: int) -> None:
        self.life += 1
        order = {
            "kind": self.kind,
            "name": self.name,
            "life": self.life,
            "address": address,
            "seed": seed,
            "timeout_ms": TIMEOUT_MS,
            "journal": str(self.journal),
        }
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, transaction_clients.__file__, json.dumps(order)],
                stdout=said,
                stderr=said,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """It may have ended only because it was killed, or fenced."""
        code = None if self._process is None else self._process.poll()
        allowed = (None, *_ENDS)
        assert code in allowed, f"{self.name} ended with {code}: {self.said[-3000:]}"

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def has_begun(self) -> bool:
        """Whether its process has the transactional id: a successor fences it, and not it that."""
        return self._noted_in == self.life

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop its process where it is; `resume` lets it continue, beside a successor perhaps."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGSTOP)
            self._stopped.append(self._process)

    def resume(self) -> None:
        for process in self._stopped:
            process.send_signal(signal.SIGCONT)
            if process is not self._process:
                # It is fenced when it next asks, and may be waiting for a broker until then.
                try:
                    process.wait(1)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self._stopped.clear()

    def finish(self) -> None:
        """Have it end what it has open."""
        self.resume()
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE_S)
            # It may not have begun yet.
            allowed = (0, -signal.SIGTERM, *_ENDS)
            assert self._process.returncode in allowed, self.said[-3000:]

    def close(self) -> None:
        for process in [*self._stopped, self._process]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def events(self) -> Iterator[dict[str, Any]]:
        """What it has noted since this was last asked."""
        with self.journal.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):
                    self._read += len(line)
                    event = json.loads(line)
                    self._noted_in = int(event["transaction"].split(".")[1])
                    yield event


class Ledger:
    """What clients have noted: which transactions are committed, aborted, or one of the two."""

    def __init__(self) -> None:
        self.intended: dict[str, list[tuple[str, int, str | None]]] = {}
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.ended = 0

    def take(self, clients: Iterable[Client]) -> None:
        for client in clients:
            for event in client.events():
                name = event["transaction"]
                if event["event"] == "intent":
                    self.intended[name] = [tuple(each) for each in event["sent"]]
                else:
                    self.ended += 1
                    (self.committed if event["event"] == "ok" else self.aborted).add(name)


class Read(NamedTuple):
    """A record as a consumer is given it."""

    offset: int
    transaction: str
    place: int
    key: bytes | None
    value: bytes


def parsed(offset: int, key: bytes | None, value: bytes) -> Read:
    transaction, place, _ = value.split(b" ", 2)
    return Read(offset, transaction.decode(), int(place), key, value)


class Named(NamedTuple):
    """What a promotion has named as committed, and perhaps not whole."""

    cut: Mapping[tuple[str, Where], int] = MappingProxyType({})
    """By transactional id and partition the first offset from which records may be missing."""
    outrun: Mapping[str, int] = MappingProxyType({})
    """Transactional ids of which transactions may be missing in any partition, each with the last
    life of its client at the source."""

    @classmethod
    def of(
        cls,
        entries: Iterable[PromotedEntry],
        lives: Mapping[str, int] = MappingProxyType({}),
        producers: Mapping[int, str] = MappingProxyType({}),
    ) -> Named:
        """What sentences name.

        Args:
            entries: with the sentences.
            lives: of the clients, by transactional id.
            producers: the transactional ids of the source by producer id.
        """
        cut: dict[tuple[str, Where], int] = {}
        outrun: dict[str, int] = {}

        def named(id_: str) -> str:
            number = id_.removeprefix(PRODUCER)
            return producers.get(int(number), id_) if number != id_ else id_

        for each in entries:
            for id_ in map(named, OUTRUN.findall(each.text)):
                outrun[id_] = lives.get(id_, 0)
            for id_, offset in CUT.findall(each.text):
                assert each.partition is not None, each
                cut[named(id_), (each.topic, each.partition)] = int(offset)
        return cls(cut, outrun)

    @property
    def has_transformer(self) -> bool:
        """Whether a transaction may be in part that has offsets of a group."""
        ids = {id_ for id_, _ in self.cut} | self.outrun.keys()
        return any(id_.startswith("transformer") for id_ in ids)

    def may_lack(self, id_: str, where: Where) -> bool:
        return id_ in self.outrun or (id_, where) in self.cut


NOTHING_NAMED = Named()


class TransactionSoak(KilledBroker):
    """One run. `close` ends it."""

    SETTINGS: Mapping[str, object] = SETTINGS
    SAYS: Mapping[str, str] = {"transactions that timed out": "was aborted: it timed out"}

    def __init__(
        self,
        nursery: Nursery,
        directory: Path,
        seed: int,
        *,
        producers: int = 2,
        seconds: int = 2,
        transformers: int = 2,
        ended_a_life: int = ENDED_A_LIFE,
        ways_to_die: Iterable[str | None] | None = None,
    ) -> None:
        self.ledger = Ledger()
        self._ended_a_life = ended_a_life
        self.clients: list[Client] = []
        self.lossy: frozenset[str] = frozenset()
        """Transactions that may be missing as a whole: their source is lost."""
        self.named = NOTHING_NAMED
        self.clamped: tuple[frozenset[str], int] = (frozenset(), 0)
        """Transactions before a promotion, and the end to which it set their offsets back."""
        self._shadow: BornBroker | None = None
        self._producers: dict[int, str] = {}
        """The transactional ids at the source by producer id, as it was last asked."""
        super().__init__(nursery, directory, seed, ways_to_die=ways_to_die)
        try:
            make_topics(self.address)
            kinds = {"producer": producers, "second": seconds, "transformer": transformers}
            for kind, count in kinds.items():
                for number in range(count):
                    self.clients.append(Client(directory, kind, f"{kind}-{number}"))
            for client in self.clients:
                self._begin(client)
        except BaseException:
            self.close()
            raise

    # --- a shadow that is promoted --------------------------------------------------------

    def follow(self, port: int = 0, dies: str | None = None) -> BornBroker:
        """Start a broker that follows this one; it may die at a step of its promotion."""
        follows = {"horolog.follow": self.address, "replica.fetch.wait.max.ms": 50}
        settings = {**SETTINGS, **follows}
        arguments = serve(self.directory / "shadow", port, settings)
        said = self.directory / "shadow.said"
        self._shadow = BornBroker(self._nursery, said, arguments, dies)
        assert self._shadow.await_ready() is not None, self._shadow.said
        return self._shadow

    def load(self, ended: int) -> None:
        """Load until clients say that this many transactions have ended."""
        target, begun = self.ledger.ended + ended, time.monotonic()
        while self.ledger.ended < target:
            self.ledger.take(self.clients)
            assert not self.broker.await_end(0.05), self.broker.said[-3000:]
            assert time.monotonic() < begun + PATIENCE_S, self._stuck()
            self._befall()

    def await_states(self) -> None:
        """Until the shadow has a state of each transactional id; it finds topics now and then."""
        assert self._shadow is not None
        assert self._shadow.ready is not None
        self._note_producers()
        self._await_present_states(self._shadow.ready)

    def _await_present_states(self, shadow: str) -> None:
        states = [(TRANSACTION_STATE, index) for index in range(2)]
        with RawConnection(self.address) as here, RawConnection(shadow) as there:
            due = [bound(here, where, 0) for where in states]
            have = partial(bound_if_there, there)
            assert eventually(lambda: all(map(int.__ge__, map(have, states), due))), due

    def _note_producers(self) -> None:
        """Ask the source for its producer ids, until each client has one."""

        def is_whole() -> bool:
            for each in self.clients:
                each.resume()
                if not each.is_running:
                    self._begin(each)
            with RawConnection(self.address) as here:
                listed = here.ask(ApiKey.LIST_TRANSACTIONS, 1).transaction_states
            self._producers.update((its.producer_id, its.transactional_id) for its in listed)
            names = set(self._producers.values())
            return names.issuperset(each.name for each in self.clients)

        assert eventually(is_whole), self._stuck()

    def load_until(self, dies: str) -> None:
        """Start the broker anew, to die at a step of its own, and load it until it does."""
        self.broker.end()
        self._listen()
        self.broker, begun = self._start(dies), time.monotonic()
        assert self.broker.await_ready() is not None, self.broker.said
        while not self.broker.await_end(0.05):
            self.ledger.take(self.clients)
            assert time.monotonic() < begun + PATIENCE_S, self._stuck()
            self._befall()

    def promote(self, *, catches_up: bool) -> None:
        """Kill the broker, and have its shadow lead; clients continue there.

        Args:
            catches_up: clients are killed before, and the shadow has all that is in the logs and
                all that groups have committed; else it has of each partition what it has.
        """
        assert self._shadow is not None
        shadow, self._shadow = self._shadow, None
        address = shadow.ready
        assert address is not None
        if catches_up:
            self._note_producers()
            for client in self.clients:
                client.close()
            assert eventually(lambda: not prepared(self.address))
            self._await_present_states(address)
            assert eventually(lambda: state_of(self.address) == state_of(address)), shadow.said
        self.broker.end()
        self._listen()
        for client in self.clients:
            client.close()
        self.ledger.take(self.clients)
        before = frozenset(self.ledger.intended)
        if not catches_up:
            self.lossy = before
        with RawConnection(address) as connection:
            self.clamped = before, bound(connection, (INPUT, 0), 0)
        shadow, entries = self._promoted(shadow, address)
        said = " ".join(each.text for each in entries)
        lives = {each.name: each.life for each in self.clients}
        self.named = Named.of(entries, lives, self._producers)
        self.counts["parts named as cut"] += len(self.named.cut)
        self.counts["transactional ids whose state was late"] += len(self.named.outrun)
        self.counts["promotions with all transformations whole"] += not self.named.has_transformer
        self.counts["transactions named as aborted"] += said.count("and aborted here")
        ids = {id_ for id_, _ in self.named.cut} | self.named.outrun.keys()
        assert ids <= {each.name for each in self.clients}, said
        assert not catches_up or not ids, f"everything was here: {said}"
        self.broker, self.address = shadow, address
        self.log_dir, self._said = self.directory / "shadow", self.directory / "shadow.said"
        self._port = int(address.rpartition(":")[2])
        for client in self.clients:
            self._begin(client)

    def _promoted(self, shadow: BornBroker, address: str) -> tuple[BornBroker, list[PromotedEntry]]:
        """Have a shadow lead, which is started again if it dies; and what its lives have named."""
        entries: list[PromotedEntry] = []
        with (
            HorologClient(address, timeout_ms=1000 * PATIENCE_S) as asking,
            ThreadPoolExecutor(1) as beside,
        ):
            promoting = beside.submit(asking.promote, None)
            while not promoting.done():
                if shadow.await_end(0.01):
                    self.counts["kills at promote"] += 1
                    said = shadow.said
                    assert "Traceback" not in said, said[-6000:]
                    entries += [
                        PromotedEntry(topic, -1, partition=int(index), text=text)
                        for topic, index, text in LOGGED.findall(said)
                    ]
                    shadow = self.follow(int(address.rpartition(":")[2]))
            promoting.result()
            entries += asking.promoted([*PARTITIONS]) or []
        self._shadow = None
        return shadow, entries

    def _begin(self, client: Client) -> None:
        client.start(self.address, self.rng.randrange(1 << 30))

    # --- one round ------------------------------------------------------------------------

    def _one_round(self) -> None:
        """Load, and what befalls clients, until the broker dies."""
        waits = OUTLIVED if self._dies is not None else self.rng.randrange(self._ended_a_life)
        target = self.ledger.ended + waits
        begun = time.monotonic()
        while not self.broker.await_end(min(pause_s(begun), 0.05)):
            self.ledger.take(self.clients)
            if self.ledger.ended >= target:
                self.counts["outlived their step"] += self._dies is not None
                break
            assert time.monotonic() < begun + PATIENCE_S, self._stuck()
            self._befall()
        if self._dies is not None:
            self.counts[f"kills at {self._dies.partition(':')[0]}"] += 1
        self._take_down()

    def _stuck(self) -> str:
        said = [f"{each.name}: {each.said[-300:]}" for each in self.clients]
        return f"nothing ends; {said}; the broker: {self.broker.said[-3000:]}"

    def _befall(self) -> None:
        """Kill a client, or hold it up, or replace one that is held up; start those that ended."""
        for client in self.clients:
            client.check()
            if not client.is_running and self.rng.random() < 0.3:
                self._begin(client)
        draw = self.rng.random()
        client = self.rng.choice(self.clients)
        if draw < 0.03:
            client.kill()
            self.counts["clients killed"] += 1
        elif draw < 0.05:
            client.pause()
            self.counts["clients held up"] += 1
        elif draw < 0.06 and client.has_begun:
            client.pause()
            self._begin(client)
            self.counts["clients replaced while they were held up"] += 1
        elif draw < 0.15:
            client.resume()
        elif draw < 0.2:
            self._trim()

    def _trim(self) -> None:
        """Delete the records before an offset near the end."""
        partition = self.rng.randrange(PARTITIONS[TRIMMED])
        try:
            with RawConnection(self.address, timeout_s=30) as connection:
                end = bound(connection, (TRIMMED, partition), 0)
                offset = max(0, end - self.rng.randrange(10, 100))
                connection.ask(
                    ApiKey.DELETE_RECORDS,
                    2,
                    **delete_fields(TRIMMED, {partition: offset}),
                    timeout_ms=30_000,
                )
            self.counts["records deleted before an offset"] += 1
        except OSError:
            pass  # the broker is gone

    def _chance(self) -> Iterator[str | None]:
        """A third are killed from outside, the others at a step of theirs."""
        while True:
            draw = self.rng.random()
            if draw < 0.3:
                yield None
            elif draw < 0.55:
                yield f"marker:{self.rng.randrange(80)}"
            elif draw < 0.7:
                yield f"complete:{self.rng.randrange(20)}"
            elif draw < 0.85:
                yield f"tear:{self.rng.randrange(200)}:{self.rng.randrange(1, 1000)}"
            else:
                yield f"step:{self.rng.randrange(400)}"

    # --- the end --------------------------------------------------------------------------

    def finish(self) -> None:
        """End the load, wait until nothing is open, and look at everything."""
        self.broker.end()
        self._listen()
        self._start_and_wait()
        for client in self.clients:
            client.resume()
            if client.kind != "transformer":
                client.finish()
        for client in self.clients:
            if client.kind == "transformer" and not client.is_running:
                self._begin(client)
        assert eventually(self._is_input_stable), self._stuck()
        last = [read_committed(self.address, (INPUT, p))[-1:] for p in range(PARTITIONS[INPUT])]
        due = [its[0].offset if its else -1 for its in last]
        assert eventually(lambda: self._is_transformed(due)), self._stuck()
        for client in self.clients:
            client.finish()
        self.ledger.take(self.clients)
        self.counts["transactions committed"] = len(self.ledger.committed)
        self.counts["transactions aborted by their producers"] = len(self.ledger.aborted)
        check = Check(self.address, self.log_dir, self.ledger, self.lossy, self.named, self.clamped)
        check.nothing_is_open()
        check.all([each.name for each in self.clients if each.kind == "second"])
        assert self.broker.end(signal.SIGTERM) == 0
        self._listen()
        check.files()
        self._start_and_wait()
        check.is_as_it_was()
        self.broker.end()
        self._listen()
        self.counts["records of committed transactions"] = check.count

    def _is_input_stable(self) -> bool:
        with RawConnection(self.address) as connection:
            return all(
                bound(connection, (INPUT, index), 1) == bound(connection, (INPUT, index), 0)
                for index in range(PARTITIONS[INPUT])
            )

    def _is_transformed(self, due: Sequence[int]) -> bool:
        """Whether the group has committed all that is committed in its topic."""
        for client in self.clients:
            if client.kind == "transformer" and not client.is_running:
                client.check()
                self._begin(client)
        with RawConnection(self.address) as connection:
            committed = offsets_of(connection, GROUP, range(PARTITIONS[INPUT]))
        return all(offset > last for offset, last in zip(committed, due, strict=True))

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if self._shadow is not None and not self._shadow.has_ended:
            self._shadow.end()
        super().close()


class Check:
    """What must be true once nothing is open."""

    def __init__(
        self,
        address: str,
        log_dir: Path,
        ledger: Ledger,
        lossy: frozenset[str] = frozenset(),
        named: Named = NOTHING_NAMED,
        clamped: tuple[frozenset[str], int] = (frozenset(), 0),
    ) -> None:
        self._address = address
        self._lossy = lossy
        self._named = named
        self._clamped = clamped
        self._log_dir = log_dir
        self._ledger = ledger
        self._read: dict[Where, list[Read]] = {}
        self._open: list[str] = []

    @property
    def count(self) -> int:
        return sum(map(len, self._read.values()))

    def nothing_is_open(self) -> None:
        """What killed clients left open has timed out: the last stable offset is the end."""
        assert eventually(self._is_stable), self._open

    def _is_stable(self) -> bool:
        with RawConnection(self._address) as connection:
            listed = connection.ask(ApiKey.LIST_TRANSACTIONS, 1).transaction_states
            self._open = [
                f"{each.transactional_id}: {each.transaction_state}"
                for each in listed
                if each.transaction_state not in ("Empty", "CompleteCommit", "CompleteAbort")
            ]
            for where in places():
                stable, end = (bound(connection, where, level) for level in (1, 0))
                if stable != end:
                    self._open.append(f"{where}: {stable} of {end} is stable")
        return not self._open

    def all(self, of_second_flow: Sequence[str]) -> None:
        for where in places():
            self._read[where] = read_committed(self._address, where)
            self._agrees_with_uncommitted(where)
        self._each_is_whole()
        for where in places():
            self._order(where)
        if not self._lossy:
            self._latest_of_each_key()
            self._suffix_of_what_was_written()
            self._offsets_of(of_second_flow)
        if not self._named.has_transformer:
            self._transformed_once()

    def is_as_it_was(self) -> None:
        """After another start consumers are given the same."""
        self.nothing_is_open()
        for where in places():
            if where[0] in (INPUT, OUTPUT):
                assert read_committed(self._address, where) == self._read[where], where

    # --- one by one -----------------------------------------------------------------------

    def _agrees_with_uncommitted(self, where: Where) -> None:
        """Each committed record is at the same offset for readers of all records."""
        everything = {}
        with RawConnection(self._address) as connection:
            for header, batch in batches(connection, where):
                if not header.is_control:
                    for record in read_records(batch):
                        everything[record.offset] = record
        for read in self._read[where]:
            found = everything.get(read.offset)
            if found is None:
                start = first_offset(self._address, where)
                is_gone = where[0] == COMPACTED or read.offset < start
                assert is_gone, f"{where}: {read} is not there for other readers"
                continue
            assert (found.key, found.value) == (read.key, read.value), f"{where}: {read}, {found}"

    def _each_is_whole(self) -> None:
        """Of each transaction all records are given, or none; none of one that was aborted."""
        given: dict[str, dict[Where, list[Read]]] = defaultdict(dict)
        for (topic, partition), reads in self._read.items():
            if topic in (INPUT, OUTPUT):
                for read in reads:
                    by = read.transaction
                    if topic == OUTPUT:
                        continue  # of the transaction that was transformed: `_transformed_once`
                    given[by].setdefault((topic, partition), []).append(read)
            else:
                for read in reads:
                    given.setdefault(read.transaction, {})
        ledger = self._ledger
        for name, counted in given.items():
            if name not in ledger.intended:
                assert self._is_unclear(name), f"{name} was never to be committed, and is given"
                continue
            assert name not in ledger.aborted, f"{name} was aborted, and is given"
            due: dict[Where, list[int]] = defaultdict(list)
            for place, (topic, partition, _) in enumerate(ledger.intended[name]):
                if topic == INPUT:
                    due[topic, partition].append(place)
            assert counted.keys() <= due.keys(), f"{name} is given where it was not sent: {counted}"
            for where, places_due in due.items():
                self._is_whole(name, where, counted.get(where, []), places_due)
        for name in ledger.committed - self._lossy:
            if any(topic == INPUT for topic, _, _ in ledger.intended[name]):
                assert name in given, f"{name} was committed, and is not given"

    def _is_unclear(self, name: str) -> bool:
        """Whether it may be what was open in partitions, of an id of the first flow that is named.

        What is open in a partition is of one transaction alone, the last of its id at the source.
        """
        id_, life, _ = name.split(".")
        last = self._named.outrun.get(id_, 0)
        if id_.startswith("second") or int(life) > last:
            return False
        for where, reads in self._read.items():
            if where[0] == OUTPUT:
                continue
            names = dict.fromkeys(each.transaction for each in reads)
            split = [each.split(".") for each in names]
            its = [".".join(each) for each in split if each[0] == id_ and int(each[1]) <= last]
            if name in its[:-1]:
                return False
        return True

    def _is_whole(self, name: str, where: Where, reads: list[Read], due: list[int]) -> None:
        """Whether a part of a transaction is given; of one that is named a first part of it."""
        found, id_ = [each.place for each in reads], name.partition(".")[0]
        if found == due:
            return
        said = f"{name} is given in part in {where}: {found} of {due}; {self._named}"
        assert name in self._lossy, said
        assert self._named.may_lack(id_, where), said
        assert found == due[: len(found)], said
        first = self._named.cut.get((id_, where))
        assert first is None or all(each.offset < first for each in reads), said

    def _order(self, where: Where) -> None:
        """Records of a producer are in the order in which it sent them, and no offset is twice."""
        last: dict[str, tuple[int, ...]] = {}
        before = -1
        for read in self._read[where]:
            assert read.offset > before, f"{where}: {read} after {before}"
            before = read.offset
            if where[0] == OUTPUT:
                continue
            name, life, number = read.transaction.split(".")
            at = int(life), int(number), read.place
            assert at > last.get(name, (0,)), f"{where}: {read} after {last[name]}"
            last[name] = at

    def _counting(self) -> dict[str, list[str]]:
        """By producer, the transactions that count, in order."""
        counting: dict[str, list[tuple[int, int]]] = defaultdict(list)
        names = {
            read.transaction
            for where, its in self._read.items()
            for read in its
            if where[0] == INPUT
        }
        for each in names:
            name, life, number = each.split(".")
            counting[name].append((int(life), int(number)))
        return {
            name: [f"{name}.{life}.{number}" for life, number in sorted(its)]
            for name, its in counting.items()
        }

    def _latest_of_each_key(self) -> None:
        """A compacted topic has the last record of each key, and nothing that does not count."""
        latest: dict[tuple[int, str], tuple[str, int]] = {}
        for names in self._counting().values():
            for name in names:
                for place, (topic, partition, key) in enumerate(self._ledger.intended[name]):
                    if topic == COMPACTED and key is not None:
                        latest[partition, key] = name, place
        for partition in range(PARTITIONS[COMPACTED]):
            found = {}
            for read in self._read[COMPACTED, partition]:
                assert read.key is not None
                found[read.key.decode()] = read.transaction, read.place
            due = {key: its for (where, key), its in latest.items() if where == partition}
            assert found == due, f"compacted-{partition}: {differences(found, due)}"

    def _suffix_of_what_was_written(self) -> None:
        """A topic that is shortened has each producer's last records, without a gap."""
        counting = self._counting()
        for partition in range(PARTITIONS[TRIMMED]):
            found: dict[str, list[tuple[str, int]]] = defaultdict(list)
            for read in self._read[TRIMMED, partition]:
                name = read.transaction.partition(".")[0]
                found[name].append((read.transaction, read.place))
            for name, names in counting.items():
                sent = [
                    (each, place)
                    for each in names
                    for place, (t, p, _) in enumerate(self._ledger.intended[each])
                    if (t, p) == (TRIMMED, partition)
                ]
                its = found[name]
                assert its == sent[len(sent) - len(its) :], f"trimmed-{partition} of {name}"

    def _transformed_once(self) -> None:
        """Each committed record of the input once, in its order; the group is behind the last.

        Where the source was lost, others of the output are of records that were lost with it.
        """
        with RawConnection(self._address) as connection:
            committed = offsets_of(connection, GROUP, range(PARTITIONS[INPUT]))
        for partition in range(PARTITIONS[INPUT]):
            due = [(read.offset, read.value) for read in self._read[INPUT, partition]]
            found = []
            for read in self._read[OUTPUT, partition]:
                offset, _, value = read.value.partition(b" ")
                found.append((int(offset), value))
            if self._lossy:
                found = [each for each in found if each in due]
            assert found == due, f"out-{partition}: {first_difference(found, due)}"
            if due:
                with RawConnection(self._address) as connection:
                    end = bound(connection, (INPUT, partition), 1)
                assert due[-1][0] < committed[partition] <= end, f"{GROUP}: {committed}"

    def _offsets_of(self, producers: Sequence[str]) -> None:
        """Offsets that were committed in transactions are those of the last that counts."""
        counting = self._counting()
        with RawConnection(self._address) as connection:
            for name in producers:
                (found,) = offsets_of(connection, group_of(name), [0])
                its = counting.get(name)
                if its:
                    _, life, number = its[-1].split(".")
                    due = int(life) * 1_000_000 + int(number)
                    if its[-1] in self._clamped[0]:  # it is no position of a record
                        due = min(due, self._clamped[1])
                    assert found == due, f"{name}: {found}, {its[-1]}"

    def files(self) -> None:
        """After a clean stop: `.txnindex` lists exactly what was aborted, and nothing is wrong."""
        for where in places():
            is_whole = where[0] in (INPUT, OUTPUT)
            check_aborted(self._log_dir / f"{where[0]}-{where[1]}", whole=is_whole)
        for topic in ("__consumer_offsets", "__transaction_state"):
            for directory in self._log_dir.glob(f"{topic}-*"):
                check_aborted(directory, whole=False)
        found = [
            step
            for step in Verification.of(self._log_dir).steps()
            if isinstance(step, Finding) and step.severity is not Severity.NOTE
        ]
        assert not found, found


# --- asking -------------------------------------------------------------------------------------


def places() -> list[Where]:
    return [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]


def prepared(address: str) -> list[str]:
    """The transactions whose outcome is decided, and whose markers are not all written."""
    with RawConnection(address) as connection:
        listed = connection.ask(ApiKey.LIST_TRANSACTIONS, 1).transaction_states
    return [each.transactional_id for each in listed if each.transaction_state[:7] == "Prepare"]


def state_of(address: str) -> list[object]:
    """How far a broker has each partition, and what groups have committed."""
    with RawConnection(address) as connection:
        try:
            found: list[object] = [bound(connection, where, 0) for where in places()]
        except AssertionError:  # a shadow that has not all topics yet
            return [address]
        groups = [GROUP, *(group_of(f"second-{number}") for number in range(4))]
        return found + [offsets_of(connection, each, range(PARTITIONS[INPUT])) for each in groups]


def make_topics(address: str) -> None:
    common = {
        "segment_bytes": "12000",
        "index_interval_bytes": "500",
        "file_delete_delay_ms": "100",
    }
    with RawConnection(address) as connection:
        for name, settings in TOPICS.items():
            fields = topic_fields(name, PARTITIONS[name], **common, **settings)
            answer = connection.ask(ApiKey.CREATE_TOPICS, 7, **fields, timeout_ms=60_000)
            assert answer.topics[0].error_code == 0, answer


def bound(connection: RawConnection, where: Where, level: int) -> int:
    """The end of a partition for consumers of an isolation level."""
    fields = lookup_fields(where[0], {where[1]: -1}, isolation_level=level)
    found = connection.ask(ApiKey.LIST_OFFSETS, 7, **fields).topics[0].partitions[0]
    assert found.error_code == 0, found
    return int(found.offset)


def bound_if_there(connection: RawConnection, where: Where) -> int:
    """The end of a partition; -1 if it is not known there."""
    fields = lookup_fields(where[0], {where[1]: -1}, isolation_level=0)
    found = connection.ask(ApiKey.LIST_OFFSETS, 7, **fields).topics[0].partitions[0]
    return -1 if found.error_code else int(found.offset)


def first_offset(address: str, where: Where) -> int:
    with RawConnection(address) as connection:
        fields = lookup_fields(where[0], {where[1]: -2})
        return int(connection.ask(ApiKey.LIST_OFFSETS, 7, **fields).topics[0].partitions[0].offset)


def offsets_of(connection: RawConnection, group: str, partitions: Iterable[int]) -> list[int]:
    topics = [{"name": INPUT, "partition_indexes": [*partitions]}]
    answer = connection.ask(
        ApiKey.OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=True
    )
    found = {each.partition_index: each for each in answer.topics[0].partitions}
    assert all(each.error_code in (0, 88) for each in found.values()), answer
    # What is not stable is not the same as what was never committed.
    return [-each.error_code or each.committed_offset for _, each in sorted(found.items())]


def read_committed(address: str, where: Where) -> list[Read]:
    """What librdkafka's consumer of committed records is given, from the start to the end."""
    consumer = confluent_kafka.Consumer(
        quick(
            **{
                "bootstrap.servers": address,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
    )
    found: list[Read] = []
    try:
        # A search for an offset before the leader is known is tried again after half a second.
        consumer.list_topics(where[0])
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(*where, beginning)])
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for message in consumer.consume(500, 0.01):
                error = message.error()
                if error is None:
                    key, value = message.key(), message.value()
                    found.append(
                        Read(message.offset(), "", 0, key, value)
                        if where[0] == OUTPUT
                        else parsed(message.offset(), key, value)
                    )
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return found
        raise AssertionError(f"{where} was not read to its end")
    finally:
        consumer.close()


def batches(connection: RawConnection, where: Where) -> Iterator[tuple[BatchHeader, bytes]]:
    """All batches of a partition as consumers of uncommitted records are given them."""
    fields = lookup_fields(where[0], {where[1]: -2})
    start = connection.ask(ApiKey.LIST_OFFSETS, 7, **fields).topics[0].partitions[0]
    offset, end = start.offset, bound(connection, where, 0)
    while offset < end:
        fields = fetch_fields(where[0], {where[1]: offset})
        found = connection.ask(ApiKey.FETCH, 12, **fields).responses[0].partitions[0]
        if found.error_code == 1:  # it was shortened meanwhile
            offset = max(offset, found.log_start_offset)
            continue
        assert found.error_code == 0, found
        data = bytes(found.records or b"")
        for position, header in iter_headers(data):
            if position + header.size > len(data):
                break
            yield header, data[position : position + header.size]
            offset = header.next_offset


# --- files --------------------------------------------------------------------------------------


def check_aborted(directory: Path, *, whole: bool) -> None:
    """Whether `.txnindex` of all segments lists what a walk over the batches finds aborted.

    Of a log that is not `whole` records of what was aborted may be gone, also the first ones alone:
    its entry stays until compaction comes again.
    """
    opened: dict[int, int] = {}
    for log in sorted(directory.glob("*.log")):
        listed = {
            (entry.producer_id, entry.last_offset): entry
            for entry in read_aborted(Files(), str(log.with_suffix(".txnindex"))) or ()
        }
        data = log.read_bytes()
        markers: set[tuple[int, int]] = set()
        for position, header in iter_headers(data):
            if not header.is_transactional:
                continue
            if not header.is_control:
                if header.records_count:
                    opened.setdefault(header.producer_id, header.base_offset)
                continue
            first = opened.pop(header.producer_id, None)
            marker = read_marker(data[position : position + header.size])
            if marker is None or not marker.is_abort:
                continue
            key = header.producer_id, header.last_offset
            markers.add(key)
            if first is not None:
                entry = listed.get(key)
                assert entry is not None, f"{log}: {key} is not listed"
                due = entry.first_offset == first if whole else entry.first_offset <= first
                assert due, f"{log}: {entry}, and it began at {first}"
                listed.pop(key)
        assert not whole or not listed, f"{log}: {listed} were not aborted there"
        assert listed.keys() <= markers, f"{log}: {listed} are no markers"


def differences(found: Mapping[Any, Any], due: Mapping[Any, Any]) -> dict[Any, Any]:
    keys = found.keys() | due.keys()
    return {k: (found.get(k), due.get(k)) for k in keys if found.get(k) != due.get(k)}


def first_difference(found: Sequence[Any], due: Sequence[Any]) -> str:
    at = next(
        (n for n, pair in enumerate(zip(found, due, strict=False)) if pair[0] != pair[1]),
        min(len(found), len(due)),
    )
    return f"{len(found)} and {len(due)}; at {at} {found[at : at + 2]} and {due[at : at + 2]}"
