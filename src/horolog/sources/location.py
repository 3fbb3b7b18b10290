"""Place that a job reads or writes: brokers, or a path of segment files."""

import os
import re
from dataclasses import dataclass

from horolog.client.config import parse_bootstrap_servers
from horolog.errors import Misconfigured
from horolog.sources.uris import LogPath

_ADDRESS = r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]+"
_ADDRESSES = re.compile(rf"\s*{_ADDRESS}\s*(?:,\s*{_ADDRESS}\s*)*,?\s*")


@dataclass(frozen=True, slots=True)
class Location:
    """A cluster or a path; exactly one of the two is given."""

    bootstrap_servers: str | None = None
    path: LogPath | None = None

    @classmethod
    def parse(cls, text: "str | os.PathLike[str] | Location", option: str = "source") -> "Location":
        """Parse a user's location: `host:port`, several with commas, or a path or URI.

        A name that looks like `host:port` is a broker; write `./name:9092` for a file.

        Raises:
            Misconfigured: it is neither; names the option.
        """
        if isinstance(text, Location):
            return text
        given = os.fspath(text).strip()
        if not given:
            raise Misconfigured(f"{option} is empty: give HOST:PORT of a broker, or a path")
        if isinstance(text, str) and _ADDRESSES.fullmatch(given):
            parse_bootstrap_servers(given)
            return cls(bootstrap_servers=given)
        return cls(path=LogPath.parse(given))

    @property
    def is_broker(self) -> bool:
        """True if the location is a broker's address."""
        return self.bootstrap_servers is not None

    @property
    def paths(self) -> tuple[LogPath, ...]:
        """The path as a tuple; empty for a broker."""
        return () if self.path is None else (self.path,)

    def __str__(self) -> str:
        """Return the address or path, normalised and without secrets."""
        return self.bootstrap_servers or ("" if self.path is None else self.path.name)
