"""The ways between the processes of a cluster, and from clients to it: which are cut, and how."""

import socket
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from tools.cluster import Cluster, ServerProcess


class Links:
    """All reach each process of a cluster by a proxy, brokers and controllers too.

    Made before the cluster's first start. Leads to each process by its advertised listener, and to
    controllers by the voters that all are told. A `with` block ends the proxies.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ways = {it.node_id: Way(it.port) for it in cluster.processes}
        voters = ",".join(
            f"{it.node_id}@{self._ways[it.node_id].address}" for it in cluster.controllers
        )
        for node in cluster.processes:
            name = "CONTROLLER" if node.kind == "controller" else "PLAINTEXT"
            node.settings["advertised.listeners"] = f"{name}://{self._ways[node.node_id].address}"
            node.settings["controller.quorum.voters"] = voters

    def __enter__(self) -> Self:
        for way in self._ways.values():
            way.open()
        return self

    def __exit__(self, *_: object) -> None:
        for way in self._ways.values():
            way.close()

    def cut(
        self,
        to: Collection[ServerProcess],
        of: Collection[ServerProcess] = (),
        *,
        is_silent: bool,
    ) -> None:
        """Cut what reaches some processes: all, or connections of some processes alone.

        Silent connections stand still until `mend` ends them; others end at once, and new ones
        are refused.
        """
        pids = {it.pid for it in of if it.is_running} if of else None
        for node in to:
            self._ways[node.node_id].cut(pids, is_silent=is_silent)

    def mend(self) -> None:
        """Let all reach all."""
        for way in self._ways.values():
            way.mend()


class Cut(NamedTuple):
    """How a way is cut."""

    of: Collection[int] | None
    """Processes whose connections are cut; None: all."""
    is_silent: bool


class Way:
    """A proxy before one port of this machine."""

    def __init__(self, port: int) -> None:
        self._target = "127.0.0.1", port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._passed: dict[socket.socket, Passing] = {}
        self._cut: Cut | None = None

    def open(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.mend()
        for passing in self._all():
            passing.end()

    def cut(self, of: Collection[int] | None, *, is_silent: bool) -> None:
        """Cut connections of some processes; None: of all."""
        self._cut = Cut(of, is_silent)
        for passing in self._all():
            self._check(passing)

    def mend(self) -> None:
        with self._lock:
            self._cut = None
        for passing in self._all():
            if passing.stands.is_set():
                passing.end()

    def _all(self) -> list["Passing"]:
        with self._lock:
            return list(self._passed.values())

    def _check(self, passing: "Passing") -> None:
        cut = self._cut
        if cut is None or not (cut.of is None or passing.is_of(cut.of)):
            return
        with self._lock:
            if self._cut is not cut:  # mended meanwhile
                return
            if cut.is_silent:
                passing.stands.set()
            else:
                passing.end()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._target)
        except OSError:  # the process is down
            near.close()
            return
        passing = Passing(near, far, self.port)
        with self._lock:
            self._passed[near] = passing
        self._check(passing)
        back = threading.Thread(target=passing.copy, args=(far, near), daemon=True)
        back.start()
        passing.copy(near, far)
        back.join()
        passing.close()
        with self._lock:
            del self._passed[near]


class Passing:
    """A connection that is passed on, both ways."""

    def __init__(self, near: socket.socket, far: socket.socket, port: int) -> None:
        self._near, self._far = near, far
        self._port = port
        self.stands = threading.Event()
        """Set: what comes is kept back, and lost at the end."""
        self._has_ended = threading.Event()

    def is_of(self, pids: Collection[int]) -> bool:
        """Whether one of these processes is at its near end."""
        try:
            return owner_of(self._near.getpeername()[1], self._port, pids) is not None
        except OSError:
            return False

    def end(self) -> None:
        """End it for both ends."""
        self._has_ended.set()
        for one in (self._near, self._far):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._near.close()
        self._far.close()

    def copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.stands.is_set():
                    self._has_ended.wait()
                    break
                sink.sendall(data)
        if self.stands.is_set():
            self._has_ended.wait()
        self.end()


def owner_of(port: int, to_port: int, pids: Collection[int]) -> int | None:
    """Which of some processes has a connection from a port of this machine to another.

    By /proc, so on Linux alone.
    """
    inode = None
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, near, far, *_ = fields = line.split()
            if (_port(near), _port(far)) == (port, to_port):
                inode = fields[9]
    for pid in pids:
        with suppress(OSError):
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if file.readlink().name == f"socket:[{inode}]":
                        return pid
    return None


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
