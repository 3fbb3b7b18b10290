"""Answers with records from files, over real sockets: every byte, in order, however it is sent."""

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from overrides import override
from patience import PATIENCE_S
from running_broker import new_event_loop

from horolog.network import MOST_AT_ONCE, ByteBudget, FileSlots, Outbox, Reply, SlicedRecords
from horolog.storage import Files, OpenFile, Slice, page_cache

FILE_BYTES = 6 << 20
CONTENT = np.arange(FILE_BYTES // 4, dtype=">u4").tobytes()
LOOPS = pytest.mark.parametrize(
    "new_loop", [new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"]
)


class Sender(asyncio.Protocol):
    """Sends one reply to its client, then closes; ends with an error, or None."""

    def __init__(self, reply: Reply, readers: ThreadPoolExecutor) -> None:
        self.reply = reply
        self.readers = readers
        self.ended: asyncio.Future[BaseException | None] = asyncio.get_event_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or sys.modules.get("uvloop")
        self.transport = transport
        self.budget = ByteBudget(1 << 20)
        self.outbox = Outbox(transport, self.budget.account(), self.readers, self.on_read)
        self.outbox.put(self.reply)
        self.go_on()

    def go_on(self) -> None:
        self.outbox.send()
        if not self.outbox:
            self.transport.close()

    def on_read(self, error: BaseException | None) -> None:
        if error is not None:
            self.end(error)
            self.transport.abort()
        else:
            self.go_on()

    def pause_writing(self) -> None:
        self.outbox.on_full()

    def resume_writing(self) -> None:
        self.outbox.on_room()
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self.outbox.close()
        self.end(exc)

    def end(self, error: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


@pytest.fixture
def file(disk_path: Path) -> Iterator[OpenFile]:
    files = Files()
    file = files.create(str(disk_path / "a.log"))
    files.write_at(file, [CONTENT], 0)
    files.sync(file)
    yield file
    files.close()


def records(file: OpenFile, start: int, end: int) -> SlicedRecords:
    slots = FileSlots(1)
    assert slots.acquire()
    return SlicedRecords(Slice(Files(), file, start, end - start), slots)


def received(
    reply: Reply,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    read: Callable[[socket.socket], bytes],
) -> tuple[bytes, BaseException | None]:
    """What a client gets that reads in its own way, and how the sending ended."""
    answers: list[bytes] = []

    async def serve() -> BaseException | None:
        with ThreadPoolExecutor(1) as readers:
            sender = Sender(reply, readers)
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: sender, "127.0.0.1", 0)
            address = server.sockets[0].getsockname()

            def client() -> None:
                with socket.socket() as sock:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                    sock.settimeout(PATIENCE_S)
                    sock.connect(address)
                    answers.append(read(sock))

            thread = threading.Thread(target=client)
            thread.start()
            ended = await asyncio.wait_for(sender.ended, PATIENCE_S)
            await loop.run_in_executor(None, thread.join)
            server.close()
            await server.wait_closed()
            return ended

    loop = new_loop()
    try:
        ended = loop.run_until_complete(serve())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
    return answers[0], ended


def all_of(sock: socket.socket, piece: int = 1 << 20) -> bytes:
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(piece):
            data += part
    return bytes(data)


def evict(file: OpenFile, start: int = 0, end: int = FILE_BYTES) -> None:
    os.posix_fadvise(file.fd, start, end - start, os.POSIX_FADV_DONTNEED)


@LOOPS
@pytest.mark.parametrize("evicted", [None, (0, FILE_BYTES), (1 << 20, 3 << 20)])
def test_every_byte_arrives_in_order_whether_cached_or_not(
    file: OpenFile,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    evicted: tuple[int, int] | None,
) -> None:
    if evicted is not None:
        evict(file, *evicted)
    end = FILE_BYTES - 77
    reply = [b"head", memoryview(b"more"), records(file, 5, end), b"tail", records(file, 9, 99)]
    expected = b"headmore" + CONTENT[5:end] + b"tail" + CONTENT[9:99]
    got, ended = received(reply, new_loop, all_of)
    assert ended is None
    assert got == expected


@LOOPS
def test_a_head_larger_than_the_socket_takes_is_sent_whole(
    file: OpenFile, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    head = os.urandom(8 << 20)
    got, ended = received([head, records(file, 0, 2 << 20)], new_loop, all_of)
    assert ended is None
    assert got == head + CONTENT[: 2 << 20]


@LOOPS
def test_a_head_of_more_parts_than_the_system_takes_is_sent_whole(
    file: OpenFile, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    head = [b"%05d" % number for number in range(3000)]
    got, ended = received([*head, records(file, 0, 2 << 20)], new_loop, all_of)
    assert ended is None
    assert got == b"".join(head) + CONTENT[: 2 << 20]


@LOOPS
def test_a_client_that_reads_in_small_pieces_gets_every_byte(
    file: OpenFile, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    reply = [b"head", records(file, 0, FILE_BYTES)]
    got, ended = received(reply, new_loop, lambda sock: all_of(sock, 3000))
    assert ended is None
    assert got == b"head" + CONTENT


@LOOPS
def test_without_cachestat_records_are_copied(
    file: OpenFile,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    override(monkeypatch, "horolog.storage", page_counter=lambda: None)
    monkeypatch.setattr(os, "sendfile", None)
    got, ended = received([b"head", records(file, 0, FILE_BYTES)], new_loop, all_of)
    assert ended is None
    assert got == b"head" + CONTENT


@LOOPS
def test_a_client_that_leaves_in_the_middle_ends_the_sending(
    file: OpenFile, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    reply = [b"head", records(file, 0, FILE_BYTES)]
    got, _ = received(reply, new_loop, lambda sock: sock.recv(1000))
    assert got == (b"head" + CONTENT)[: len(got)]


@LOOPS
def test_a_file_that_became_shorter_is_an_error_and_no_wrong_byte_is_sent(
    file: OpenFile, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    os.ftruncate(file.fd, 1 << 20)
    got, ended = received([b"head", records(file, 0, FILE_BYTES)], new_loop, all_of)
    assert "ended while its records were being sent" in str(ended)
    assert got == (b"head" + CONTENT)[: len(got)]


@pytest.mark.skipif(page_cache.page_counter() is None, reason="needs Linux 6.5")
@LOOPS
def test_cached_records_are_not_copied(
    file: OpenFile,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied = 0
    take_cached = SlicedRecords.take_cached

    def counted(self: SlicedRecords, max_bytes: int) -> object:
        nonlocal copied
        piece = take_cached(self, max_bytes)
        copied += len(piece or b"")
        return piece

    monkeypatch.setattr(SlicedRecords, "take_cached", counted)
    monkeypatch.setattr(SlicedRecords, "take", None)
    got, ended = received([b"head", records(file, 0, FILE_BYTES)], new_loop, all_of)
    assert ended is None
    assert got == b"head" + CONTENT
    assert copied < FILE_BYTES / 2  # only where the socket was full


def test_very_many_records_of_files_are_sent_whole_and_in_order(file: OpenFile) -> None:
    """In several turns of the event loop."""
    reply: Reply = [records(file, start, start + 5) for start in range(3 * MOST_AT_ONCE + 1)]

    def read(sock: socket.socket) -> bytes:
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))

    found, error = received(reply, asyncio.new_event_loop, read)
    assert error is None
    assert found == b"".join(CONTENT[start : start + 5] for start in range(len(reply)))
