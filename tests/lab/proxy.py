"""What an operator puts before a broker: a load balancer, or what speaks TLS (stunnel)."""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from certificates import Certificates
from patience import PATIENCE_S


class Proxy:
    """Passes connections on while its `with` block lasts: one to each of `targets`, then to the
    last."""

    def __init__(self) -> None:
        self.targets: list[tuple[str, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _begin(self, target: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._begin(self._serve, connection)

    def _opened(self, connection: socket.socket) -> socket.socket:
        return connection

    def _serve(self, connection: socket.socket) -> None:
        target = self.targets.pop(0) if len(self.targets) > 1 else self.targets[0]
        try:
            secured = self._opened(connection)
        except (OSError, ssl.SSLError):  # a client that speaks no TLS, or is not known
            connection.close()
            return
        behind = socket.create_connection(target)
        self._open += secured, behind
        with secured, behind:
            back = self._begin(self._copy, behind, secured)
            self._copy(secured, behind)
            back.join(PATIENCE_S)

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class TlsProxy(Proxy):
    """Accepts TLS."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.pem("broker"))
        self._context.load_verify_locations(certificates.authority)
        self._context.verify_mode = ssl.CERT_REQUIRED

    def _opened(self, connection: socket.socket) -> socket.socket:
        return self._context.wrap_socket(connection, server_side=True)
