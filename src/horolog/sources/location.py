"""Where a job reads and writes: a broker's `host:port[,host:port]`, or a path of segment files."""

import os
import re
from dataclasses import dataclass

from horolog.client.config import parse_bootstrap_servers
from horolog.errors import Misconfigured
from horolog.sources.object_stores import shown
from horolog.sources.uris import local_path

_ADDRESS = r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]+"
_ADDRESSES = re.compile(rf"\s*{_ADDRESS}\s*(?:,\s*{_ADDRESS}\s*)*,?\s*")


def same_path(path: str) -> str:
    """A path or URI, the same in whatever way it is written, and without credentials."""
    return local_path(path) or shown(path)


@dataclass(frozen=True, slots=True)
class Location:
    """A cluster or a directory; exactly one of the two is given."""

    bootstrap_servers: str | None = None
    path: str | None = None

    @classmethod
    def parse(cls, text: str | os.PathLike[str], option: str = "source") -> "Location":
        """What a user gave: `host:port`, several with commas, or a path or URI.

        A name that looks like `host:port` is a broker; write `./name:9092` for such a file.

        Raises:
            Misconfigured: it is neither; names the option.
        """
        given = os.fspath(text).strip()
        if not given:
            raise Misconfigured(f"{option} is empty: give HOST:PORT of a broker, or a path")
        if isinstance(text, str) and _ADDRESSES.fullmatch(given):
            parse_bootstrap_servers(given)
            return cls(bootstrap_servers=given)
        return cls(path=given)

    @property
    def is_broker(self) -> bool:
        """Whether a broker is asked, and not files read."""
        return self.bootstrap_servers is not None

    @property
    def normalised(self) -> str:
        """As a state keeps it: the same however a path on this machine is written, no secrets."""
        return str(self) if self.path is None else same_path(self.path)

    def __str__(self) -> str:
        return self.bootstrap_servers or self.path or ""
