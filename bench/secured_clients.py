"""Clients of bench/clients.py that connect by TLS and log in: thousands a minute, or never."""

import base64
import hashlib
import hmac
import secrets
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

from bench import raw
from bench.harness import Watch

from horolog.security import ScramMechanism, salted

AT_ONCE = 8  # connections
_HELLO = bytes.fromhex("16030100f8010000f40303")  # the first bytes of a ClientHello
_salted = lru_cache(salted)  # a client keeps it, so that it costs the broker's logins nothing


def _context(authority: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _many(work: Callable[[], object], count: int) -> dict[str, float]:
    """Do it this often, a few at once, after a few that are not counted."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for _ in threads.map(lambda _: work(), range(4 * AT_ONCE)):
            pass
        watch = Watch()
        for _ in threads.map(lambda _: work(), range(count)):
            pass
        return watch.numbers()


def connections(bootstrap: str, authority: str, count: int) -> dict[str, float]:
    """Connect with a whole handshake, ask one question, and disconnect."""
    return {
        **_many(partial(_connect, bootstrap, _context(authority)), count),
        "connections": count,
    }


def _connect(bootstrap: str, context: ssl.SSLContext) -> None:
    with raw.Connection(bootstrap, tls=context) as connection:
        raw.check_first("versions", connection.ask(raw.API_VERSIONS, b""))


def logins(
    bootstrap: str, count: int, user: str, password: str, authority: str | None = None
) -> dict[str, float]:
    """Connect, log in by SCRAM-SHA-512, and disconnect; the salted password is kept."""
    context = None if authority is None else _context(authority)
    return {**_many(partial(_log_in, bootstrap, user, password, context), count), "logins": count}


def _log_in(bootstrap: str, user: str, password: str, context: ssl.SSLContext | None) -> None:
    """Log in, and check the proof that the broker knows the user."""
    mechanism = ScramMechanism.SHA_512
    with raw.Connection(bootstrap, tls=context) as connection:

        def say(message: str) -> str:
            body = raw.sasl_authenticate_request(message.encode())
            return raw.authenticated(connection.ask(raw.SASL_AUTHENTICATE, body)).decode()

        named = raw.sasl_handshake_request(mechanism.title)
        raw.check_first("handshake", connection.ask(raw.SASL_HANDSHAKE, named))
        begun = f"n={user},r={secrets.token_urlsafe(24)}"
        first = say(f"n,,{begun}")
        fields = {part[0]: part[2:] for part in first.split(",")}
        key = _salted(mechanism, password, base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(key, b"Client Key", "sha512")
        end = f"c=biws,r={fields['r']}"
        signed = f"{begun},{first},{end}".encode()
        signature = hmac.digest(hashlib.sha512(client_key).digest(), signed, "sha512")
        proof = bytes(one ^ two for one, two in zip(client_key, signature, strict=True))
        answer = say(f"{end},p={base64.b64encode(proof).decode()}")
        proven = hmac.digest(hmac.digest(key, b"Server Key", "sha512"), signed, "sha512")
        assert answer == f"v={base64.b64encode(proven).decode()}"


def flood(bootstrap: str, authority: str, stalled: int, rate: float) -> dict[str, float]:
    """Keep handshakes that stall, and make whole ones at a rate, until the input ends.

    Stalled ones that the broker closes are begun anew, at the same rate. A line says when all are
    there.
    """
    host, _, port = bootstrap.rpartition(":")
    ended, done = threading.Event(), threading.Semaphore(0)
    selector = selectors.DefaultSelector()
    context = _context(authority)

    def stall() -> None:
        sock = socket.create_connection((host, int(port)))
        sock.sendall(_HELLO)
        selector.register(sock, selectors.EVENT_READ)

    def connect() -> None:
        _connect(bootstrap, context)
        done.release()

    for _ in range(stalled):
        stall()
    print(stalled, flush=True)

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    watch, began, begun = Watch(), time.perf_counter(), 0
    with ThreadPoolExecutor(AT_ONCE) as threads:
        work = []
        while not ended.is_set():
            due = began + begun / rate
            for key, _ in selector.select(max(0.0, due - time.perf_counter())):
                assert isinstance(key.fileobj, socket.socket)
                selector.unregister(key.fileobj)
                key.fileobj.close()
            if time.perf_counter() >= due:
                work.append(threads.submit(connect))
                begun += 1
                if len(selector.get_map()) < stalled:
                    stall()
        numbers = watch.numbers()
        made = sum(one.done() for one in work)
        for one in work:
            one.result()
    return {**numbers, "connections": made}
