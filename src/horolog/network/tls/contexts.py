"""TlsContexts: what listeners speak TLS with, loaded anew when settings or files change.

A context that is in use is never changed: a new one replaces it, and connections live on with
theirs. What cannot be loaded, or names another broker, is refused, and the old one stays.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn, TypeAlias

from horolog.config import ListenerTls
from horolog.errors import Misconfigured
from horolog.security.contexts import ServerTls, server_tls
from horolog.security.names import alternative_names, subject_name

__all__ = ["TlsContexts"]

_LOG = logging.getLogger(__name__)

RELOAD_SECONDS: Final = 5.0
_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")
_TRUSTED: Final = ("ssl.truststore.location", "ssl.truststore.certificates")
_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Time of change, size and number of each file."""


class _Loaded(NamedTuple):
    tls: ServerTls
    settings: Mapping[str, str]
    stamp: _Stamp


class TlsContexts:
    """Contexts by listener. `load` and `load_changed` read files, so they belong in a thread."""

    def __init__(self, listeners: Mapping[str, ListenerTls]) -> None:
        """Load all.

        Raises:
            Misconfigured: one cannot be loaded; names the listener.
        """
        self._loaded = {name: _load(name, tls) for name, tls in listeners.items()}
        self._refused: dict[str, _Stamp] = {}  # files that were complained of

    def __bool__(self) -> bool:
        return bool(self._loaded)

    def __contains__(self, listener: str) -> bool:
        return listener in self._loaded

    def __getitem__(self, listener: str) -> ServerTls:
        return self._loaded[listener].tls

    def load(self, listeners: Mapping[str, ListenerTls]) -> dict[str, _Loaded]:
        """Return what has changed, for `take`.

        Raises:
            Misconfigured: it cannot be loaded, or the certificate has other names.
        """
        changed = {}
        for name, tls in listeners.items():
            old = self._loaded.get(name)
            if old is None or (tls.settings == old.settings and _stamp(tls) == old.stamp):
                continue
            changed[name] = _load(name, tls)
            _require_a_trust_store_as_before(name, old.settings, tls.settings)
            _require_same_names(name, old.tls, changed[name].tls, tls)
        return changed

    def load_changed(self, listeners: Mapping[str, ListenerTls]) -> dict[str, _Loaded]:
        """Return what can be loaded of changed files; what cannot is logged once."""
        changed: dict[str, _Loaded] = {}
        for name, tls in listeners.items():
            stamp = _stamp(tls)
            if self._refused.get(name) == stamp:
                continue
            try:
                changed |= self.load({name: tls})
                self._refused.pop(name, None)
            except Misconfigured as error:
                self._refused[name] = stamp
                _LOG.error("%s; the certificate that was loaded before stays in use", error)
        return changed

    async def keep_loaded(self, listeners: Callable[[], Mapping[str, ListenerTls]]) -> NoReturn:
        """Load again what changes, until it is cancelled; `listeners` returns current settings."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            try:
                changed = await asyncio.to_thread(self.load_changed, listeners())
                self.take(changed, listeners())
            except Exception:  # noqa: BLE001 - a bug keeps the certificates, and is tried again
                _LOG.exception("certificates cannot be loaded anew: a bug")

    def take(self, changed: Mapping[str, _Loaded], listeners: Mapping[str, ListenerTls]) -> None:
        """Use what was loaded from now on, unless its settings have changed meanwhile."""
        for name, loaded in changed.items():
            if listeners[name].settings == loaded.settings:
                self._loaded[name] = loaded
                _LOG.info("the listener %s has loaded its certificates anew", name)


def _load(listener: str, tls: ListenerTls) -> _Loaded:
    stamp = _stamp(tls)  # before the files are read: a later change is seen
    try:
        return _Loaded(server_tls(tls.settings), tls.settings, stamp)
    except (Misconfigured, ValueError) as error:
        raise Misconfigured(f"the listener {listener}: {error}") from None


def _stamp(tls: ListenerTls) -> _Stamp:
    return tuple(_stamp_of(tls.settings.get(name)) for name in _FILES)


def _stamp_of(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _require_a_trust_store_as_before(
    listener: str, old: Mapping[str, str], new: Mapping[str, str]
) -> None:
    """Refuse a trust store where there was none, and none where there was one, as Kafka does."""
    if any(map(old.get, _TRUSTED)) != any(map(new.get, _TRUSTED)):
        raise Misconfigured(
            f"the listener {listener}: a trust store cannot be added or removed while the broker "
            "runs; write it into its configuration and restart it"
        )


def _require_same_names(listener: str, old: ServerTls, new: ServerTls, tls: ListenerTls) -> None:
    """Refuse a certificate for another broker, as Kafka does."""
    before, after = subject_name(old.certificate), subject_name(new.certificate)
    if before != after and not tls.allows("ssl.allow.dn.changes"):
        raise Misconfigured(
            f"the listener {listener}: the new certificate's name is {after}, and the old one's "
            f"{before}; ssl.allow.dn.changes=true allows that"
        )
    missing = alternative_names(old.certificate) - alternative_names(new.certificate)
    if missing and not tls.allows("ssl.allow.san.changes"):
        raise Misconfigured(
            f"the listener {listener}: the new certificate lacks {len(missing)} of the alternative "
            "names of the old one; ssl.allow.san.changes=true allows that"
        )
