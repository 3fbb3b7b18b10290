"""The least that any server of this kind can do: what is left to gain of `unbatched`.

    python -m bench.bare_server FILE

Takes Produce requests (v7, as `raw` sends them) with the event loop of the broker, writes each to a
file as it is and answers with as many bytes as a broker: no checks, no indexes, no offsets. Prints
`ready` and the address.
"""

import asyncio
import os
import struct
import sys
from typing import cast

from horolog.broker.service import new_event_loop

# One topic of eight letters, partition 0, appended at offset 0; the length and the id come first.
_BODY = struct.pack(">ih8sii", 1, 8, b"produce-", 1, 0) + struct.pack(">hqqqi", 0, 0, -1, 0, 0)


class Bare(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = 0
        self._held = 0
        self._room = memoryview(bytearray(1 << 18))
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._room[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        """Write each whole request to the file, and answer it."""
        self._held += nbytes
        at, answers = 0, []
        while at + 4 <= self._held:
            length, _, correlation_id = struct.unpack_from(">iii", self._room, at)
            if at + 4 + length > self._held:
                break
            os.pwritev(self._fd, [self._room[at + 4 : at + 4 + length]], self._end)
            self._end += length
            answers.append(struct.pack(">ii", 4 + len(_BODY), correlation_id) + _BODY)
            at += 4 + length
        rest = self._held - at
        self._room[:rest] = self._room[at : self._held]
        self._held = rest
        if answers and self._transport is not None:
            self._transport.write(b"".join(answers))


async def serve(path: str) -> None:
    """Serve until the process ends."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Bare(fd), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"ready {host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    new_event_loop().run_until_complete(serve(sys.argv[1]))
