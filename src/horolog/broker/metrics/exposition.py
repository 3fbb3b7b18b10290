"""Samples in Prometheus' text format, version 0.0.4."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

from horolog.broker.metrics.families import Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@lru_cache(maxsize=64)  # several families have a sample with the same labels
def labels_of(names: Sequence[str], values: Sequence[object]) -> str:
    """Return the labels of a sample, with names that clients choose escaped."""
    pairs = [
        f'{name}="{str(value).translate(_ESCAPED)}"'
        for name, value in zip(names, values, strict=True)
    ]
    return f"{{{','.join(pairs)}}}" if pairs else ""


class Exposition:
    """Collected samples, which may be added in any order.

    At most `most` have labels: clients choose how many topics and groups there are, and a page is
    held in memory until it is read.
    """

    def __init__(self, most: int) -> None:
        self._lines: dict[Family, list[str]] = {}
        self._left = most
        self.left_out = 0
        """Number of samples that exceeded `most`."""

    def begin(self, *families: Family) -> None:
        """Expose families even if they have no sample."""
        for family in families:
            self._lines.setdefault(family, [])

    def add(self, family: Family, value: float, *labels: object, suffix: str = "") -> None:
        """Add a sample, with the values of its labels in their order."""
        if labels:
            names = family.labels
            if len(labels) > len(names):
                names = (*names, family.last_label)
            line = f"{family.name}{suffix}{labels_of(names, labels)} {value}\n"
            self._add_lines(family, [line])
        else:
            self._lines.setdefault(family, []).append(f"{family.name} {value}\n")

    def add_buckets(
        self, family: Family, bounds: Sequence[str], counts: Sequence[int], *values: object
    ) -> None:
        """Add the buckets of a histogram, from the counts of each bucket alone."""
        labels = labels_of(family.labels, values)
        begin = f"{family.name}_bucket{labels[:-1]}{',' if labels else '{'}le="
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
        """Yield all samples; those of one family together, after its help and type."""
        for family, lines in self._lines.items():
            # The helps have neither a backslash nor a line break.
            head = f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
            # A name that a client chose may hold surrogates.
            yield (head + "".join(lines)).encode(errors="replace")
