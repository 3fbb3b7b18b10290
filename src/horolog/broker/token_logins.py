"""TokenLogins: logins by tokens (OAUTHBEARER), and the keys that check these.

Keys are read from a file or a URL (JWKS), never on the event loop, and read again while the broker
runs: a file every ten seconds, a URL after `sasl.oauthbearer.jwks.endpoint.refresh.ms`. A token of
an unknown key waits for keys that are read anew, which happens every ten seconds at most. What
cannot be read leaves the keys as they are.
"""

import asyncio
import http.client
import logging
import urllib.request
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, TypeVar

from horolog.client.http_exchange import HttpExchange, failure
from horolog.config import Login, TokenKeys, TokenSettings
from horolog.errors import Misconfigured
from horolog.extras import missing_extra
from horolog.security.claims import TokenRules
from horolog.security.contexts import endpoint_tls
from horolog.security.files import read_small
from horolog.security.urls import checked_url, without_secrets

if TYPE_CHECKING:
    from horolog.security.tokens import TokenLogin

_LOG = logging.getLogger(__name__)

RENEWED_EVERY_S: Final = 10.0
ANSWERED_WITHIN_S: Final = 10.0
STARTED_WITHIN_S: Final = 2.0
_MAX_FILE_BYTES: Final = 1 << 20

_T = TypeVar("_T")


class TokenLogins:
    """Logins by tokens of all listeners."""

    def __init__(self, now_ms: Callable[[], int], readers: Executor) -> None:
        self._now_ms = now_ms
        self._readers = readers
        self._sources: dict[TokenKeys, _KeySource] = {}

    async def start(self, logins: Collection[Login]) -> None:
        """Read the keys of all listeners. Those of a URL that does not answer are read later.

        Raises:
            Misconfigured: a file has no keys, or a package is missing.
        """
        for login in logins:
            if login.tokens is not None:
                await self._source(login.tokens.keys).start()

    def begin(self, settings: TokenSettings) -> "TokenLogin":
        """Begin a login.

        Raises:
            MissingExtra: tokens cannot be checked without a package that is missing.
        """
        return self._source(settings.keys).begin(settings.rules, self._now_ms)

    async def renew(self, settings: TokenSettings) -> None:
        """Read the keys again, unless that was done within ten seconds, and wait for that."""
        await self._source(settings.keys).renew()

    def end_waits(self) -> None:
        """Let no login wait for keys any more."""
        for source in self._sources.values():
            source.end_waits()

    async def close(self) -> None:
        """Read nothing more."""
        for source in self._sources.values():
            await source.close()

    def _source(self, settings: TokenKeys) -> "_KeySource":
        if settings not in self._sources:
            self._sources[settings] = _KeySource(settings, self._readers)
        return self._sources[settings]


class _KeySource:
    """Keys of one file or URL."""

    def __init__(self, settings: TokenKeys, readers: Executor) -> None:
        """Read nothing yet.

        Raises:
            MissingExtra: a package is missing that reads them.
            Misconfigured: the certificates that are trusted cannot be read.
        """
        try:
            from horolog.security.tokens import (  # noqa: PLC0415 - of an extra
                SigningKeys,
                TokenLogin,
            )
        except ImportError as error:
            raise missing_extra(error, "OAUTHBEARER", "security") or error from None
        self._keys: SigningKeys = SigningKeys()
        self._parse = SigningKeys.read
        self._login = TokenLogin
        self._settings = settings
        self._readers = readers
        self._parts = checked_url(settings.url, "sasl.oauthbearer.jwks.endpoint.url")
        self._shown = without_secrets(self._parts)
        self._tls = endpoint_tls(dict(settings.tls))
        self._loop = asyncio.get_running_loop()
        self._text: bytes | None = None
        self._failures = 0
        self._complaint = ""
        self._begun = 0.0
        """Time of the event loop at which the last reading began."""
        self._reading: asyncio.Task[None] | None = None
        self._again: asyncio.Task[None] | None = None

    @property
    def _is_file(self) -> bool:
        return self._parts.scheme == "file"

    def begin(self, rules: TokenRules, now_ms: Callable[[], int]) -> "TokenLogin":
        """Begin a login that is checked by the keys of the moment."""
        return self._login(rules, lambda: self._keys, now_ms)

    async def start(self) -> None:
        """Read the keys for the first time; a URL that is slow answers while the broker serves.

        Raises:
            Misconfigured: the file has none.
        """
        timeout_s = None if self._is_file else STARTED_WITHIN_S
        await asyncio.wait({self._begin_reading()}, timeout=timeout_s)
        if self._is_file and self._complaint:
            raise Misconfigured(self._complaint)

    async def renew(self) -> None:
        """Read the keys again, unless that was done within ten seconds, and wait for that."""
        is_late = not self._begun or self._loop.time() - self._begun >= RENEWED_EVERY_S
        if self._reading is not None or is_late:
            await asyncio.wait({self._begin_reading()})

    def end_waits(self) -> None:
        """Give up the keys that are being read."""
        if self._reading is not None:
            self._reading.cancel()

    async def close(self) -> None:
        """Read nothing more."""
        tasks = [task for task in (self._again, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_again(self) -> None:
        while True:
            await asyncio.wait({self._begin_reading()})
            await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """Return the pause before the next reading, in seconds."""
        if self._is_file:
            return RENEWED_EVERY_S
        pause_ms = self._settings.refresh_ms
        if self._failures:
            doubled_ms = self._settings.backoff_ms << min(self._failures - 1, 30)
            pause_ms = min(doubled_ms, self._settings.backoff_max_ms)
        return pause_ms / 1000

    def _begin_reading(self) -> asyncio.Task[None]:
        """Begin to read the keys, unless they are being read, and return that task.

        From the first time on, they are read again and again.
        """
        if self._reading is None:
            self._begun = self._loop.time()
            self._reading = self._loop.create_task(self._read())
        if self._again is None:
            self._again = self._loop.create_task(self._read_again())
        return self._reading

    async def _read(self) -> None:
        try:
            text = await (self._from_file() if self._is_file else self._from_url())
            if text != self._text:
                self._keys = await self._in_thread(self._parse, text)
                self._text = text
                _LOG.info("%s: %d keys that check tokens", self._shown, len(self._keys))
            self._failures, self._complaint = 0, ""
        except (OSError, http.client.HTTPException) as error:
            self._complain(
                error.strerror or str(error)
                if self._is_file and isinstance(error, OSError)
                else failure(error)
            )
        except ValueError as error:
            self._complain(f"no set of keys (JWKS): {error}")
        finally:
            self._reading = None

    async def _from_file(self) -> bytes:
        path = urllib.request.url2pathname(self._parts.path)
        return await self._in_thread(read_small, path, _MAX_FILE_BYTES)

    async def _from_url(self) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._settings.url, headers={"Accept": "application/json"}
        )
        exchange = HttpExchange(request, ANSWERED_WITHIN_S, self._tls)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(exchange.answer), ANSWERED_WITHIN_S)
        finally:
            exchange.end()

    async def _in_thread(self, call: Callable[..., _T], *arguments: object) -> _T:
        return await self._loop.run_in_executor(self._readers, call, *arguments)

    def _complain(self, why: str) -> None:
        """Count a failure, and log one that is another than the last."""
        self._failures += 1
        complaint = f"keys that check tokens cannot be read: {self._shown} {why}"
        if complaint != self._complaint:
            self._complaint = complaint
            rest = "those that were read before stay in use" if self._text else "tokens are refused"
            _LOG.error("%s; %s", complaint, rest)
