"""Samples in Prometheus' text format, version 0.0.4."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
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
            self._add_lines(family, [f"{family.name}{suffix}{labels} {value}\n"])
        else:
            self._lines.setdefault(family, []).append(f"{family.name}{suffix} {value}\n")

    def add_buckets(
        self, family: Family, bounds: Sequence[str], counts: Sequence[int], labels: str
    ) -> None:
        """The buckets of a histogram with these labels, each with what is in it alone."""
        begin = f"{family.name}_bucket{labels[:-1]},le="
        so_far = list(accumulate(counts))
        lines = [f'{begin}"{le}"}} {n}\n' for le, n in zip(bounds, so_far, strict=True)]
        self._add_lines(family, [*lines, f"{family.name}_count{labels} {so_far[-1]}\n"])

    def _add_lines(self, family: Family, lines: list[str]) -> None:
        if self._left < len(lines):
            self.left_out += len(lines)
            return
        self._left -= len(lines)
        self._lines.setdefault(family, []).extend(lines)

    def parts(self) -> Iterator[bytes]:
        """All of them; those of one family together, behind its help and type."""
        for family, lines in self._lines.items():
            # The helps have neither a backslash nor a line break.
            head = f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
            # A name that a client chose may hold surrogates.
            yield (head + "".join(lines)).encode(errors="replace")
