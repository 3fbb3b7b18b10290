"""Samples in Prometheus' text format, version 0.0.4."""

from collections.abc import Iterable
from typing import Final

from horolog.broker.metrics.families import Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels_of(names: Iterable[str], values: Iterable[object]) -> str:
    """Labels as a sample has them; what clients choose is escaped."""
    pairs = [
        f'{name}="{str(value).translate(_ESCAPED)}"'
        for name, value in zip(names, values, strict=True)
    ]
    return f"{{{','.join(pairs)}}}" if pairs else ""


class Exposition:
    """Samples of families, which may come in any order.

    At most `most` have labels: clients choose how many topics and groups there are, and a page is
    held in memory until it is read.
    """

    def __init__(self, most: int) -> None:
        self._lines: dict[Family, list[str]] = {}
        self._left = most
        self.left_out = 0
        """Samples beyond that."""

    def begin(self, *families: Family) -> None:
        """These are exposed even if they have no sample."""
        for family in families:
            self._lines.setdefault(family, [])

    def add(self, family: Family, value: float, labels: str = "", suffix: str = "") -> None:
        """One sample; labels as `labels_of` makes them."""
        if labels:
            if not self._left:
                self.left_out += 1
                return
            self._left -= 1
        self._lines.setdefault(family, []).append(f"{family.name}{suffix}{labels} {value}\n")

    def text(self) -> bytes:
        """All of them; those of one family together, behind its help and type."""
        parts: list[str] = []
        for family, lines in self._lines.items():
            # The helps have neither a backslash nor a line break.
            parts.append(
                f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
            )
            parts += lines
        # A name that a client chose may hold surrogates.
        return "".join(parts).encode(errors="replace")
