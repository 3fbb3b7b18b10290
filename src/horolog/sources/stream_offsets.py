"""How far a stream has been read: what Spark keeps in a checkpoint. Pure: no Spark, no broker.

One offset of a stream, as JSON on one line:

    {"version": 1, "offsets": {"orders": {"0": 120, "1": 7}}, "starts": {"orders": {"1": 0}}}

    version   1. Others are refused
    offsets   by topic and partition, the offset after the last one that was read
    starts    where reading starts in partitions that a micro-batch is the first to read: all in
              the first one, later those found while running, and those that start again
              after data was lost
    seams     of a backfill, the log ends of the query's first start: the offsets before them
              are filtered by backfillFromTimestamp. Left out once reading has passed them
    ends      of a stream that ends, the log ends that it ends at, once stopAtTimestamp passed
    largest   of a query that counts late records, the largest time before `offsets` in
              milliseconds, as far as it was known
    complete  of a query that has `completeUntil`, the time in milliseconds before which no row is
              behind `offsets`; left out where it is unknown
    ids       of topics, where there are any: a topic that was deleted and created again has
              another one
    moments   by option, relative times (-3d) as the query's first start resolved them

`starts` are there because Spark asks again where a stream starts until its first
micro-batch is done: without them a query whose first batch failed would start again at
the "latest" of that later moment, and lose what is between. `seams`, `ends` and `moments`
are there for the same reason: an offset says by itself what its micro-batch reads.

A checkpoint that Spark's own Kafka source wrote holds the `offsets` alone,
`{"orders": {"0": 120, "1": 7}}`, and is read as well.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from horolog.errors import Misconfigured
from horolog.sources.plan import BrokerStretch
from horolog.sources.row_times import ANY_TIME, RowTimes
from horolog.storage.names import TopicPartition

VERSION = 1
_INT64_MIN = -(1 << 63)

Offsets = Mapping[TopicPartition, int]

_KNOWN = {"version", "offsets", "starts", "seams", "ends", "moments", "largest", "complete", "ids"}


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """End of a micro-batch, with all that is needed to read it, now or again."""

    offsets: Offsets
    starts: Offsets = field(default_factory=dict)
    seams: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    moments_ms: Mapping[str, int] = field(default_factory=dict)
    largest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    complete_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON object that Spark takes."""
        written: dict[str, Any] = {"version": VERSION, "offsets": by_topic(self.offsets)}
        for name, offsets in (("starts", self.starts), ("seams", self.seams), ("ends", self.ends)):
            if offsets:
                written[name] = by_topic(offsets)
        if self.largest_ms:
            written["largest"] = by_topic(self.largest_ms)
        if self.complete_ms is not None:
            written["complete"] = self.complete_ms
        if self.topic_ids:
            written["ids"] = dict(sorted(self.topic_ids.items()))
        if self.moments_ms:
            written["moments"] = dict(self.moments_ms)
        return written

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_json`, or Spark's Kafka source, has written.

        Raises:
            Misconfigured: it is neither.
        """
        try:
            if isinstance(value.get("version", {}), dict):  # a topic may have this name
                return cls(_by_partition(value))
            if value["version"] == VERSION and value.keys() <= _KNOWN:
                moments = value.get("moments", {})
                if any(type(moment) is not int for moment in moments.values()):
                    raise TypeError(moments)
                complete_ms = value.get("complete")
                if complete_ms is not None and type(complete_ms) is not int:
                    raise TypeError(complete_ms)
                ids = value.get("ids", {})
                if any(type(topic_id) is not str for topic_id in ids.values()):
                    raise TypeError(ids)
                return cls(
                    offsets=_by_partition(value["offsets"]),
                    starts=_by_partition(value.get("starts", {})),
                    seams=_by_partition(value.get("seams", {})),
                    ends=_by_partition(value.get("ends", {})),
                    moments_ms=dict(moments),
                    largest_ms=_by_partition(value.get("largest", {}), least=_INT64_MIN),
                    topic_ids=dict(ids),
                    complete_ms=complete_ms,
                )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Misconfigured(
                f"The checkpoint holds an offset that is not horolog's: {json.dumps(value)}"
            ) from None
        unknown = sorted(value.keys() - _KNOWN)
        also = f" with {', '.join(unknown)}" if unknown else ""
        raise Misconfigured(
            f"The checkpoint holds an offset of version {value['version']}{also}; this horolog "
            f"knows version {VERSION} with {', '.join(sorted(_KNOWN - {'version'}))}"
        )

    @property
    def is_at_its_ends(self) -> bool:
        """True if a stream with an end has been read to it."""
        return bool(self.ends) and all(
            self.offsets.get(partition, end) >= end for partition, end in self.ends.items()
        )

    def ranges_from(self, start: "StreamOffset", times: RowTimes = ANY_TIME) -> list[BrokerStretch]:
        """Return the ranges of the micro-batch that begins at `start` and ends here.

        Raises:
            Misconfigured: neither of them says where a partition starts.
        """
        times = times.pinned(self.moments_ms)
        stretches = []
        for partition, end in sorted(self.offsets.items()):
            first = self.starts.get(partition, start.offsets.get(partition))
            if first is None:
                raise Misconfigured(
                    f"The checkpoint does not say where {partition} starts: "
                    f"{json.dumps(start.to_json())} to {json.dumps(self.to_json())}"
                )
            has_restarted = partition in self.starts and partition in start.offsets
            largest_ms = None if has_restarted else start.largest_ms.get(partition)
            seam = min(max(first, self.seams.get(partition, first)), end)
            if first < seam:
                before = times.backfill_range
                stretches.append(
                    BrokerStretch(
                        partition,
                        first,
                        seam,
                        times=before,
                        largest_ms=largest_ms,
                        complete_ms=self.complete_ms,
                    )
                )
            if seam < end:
                live = times.range
                stretches.append(
                    BrokerStretch(
                        partition,
                        seam,
                        end,
                        times=live,
                        largest_ms=largest_ms,
                        complete_ms=self.complete_ms,
                    )
                )
        return [stretch for stretch in stretches if not stretch.times.is_empty]


def limited(positions: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
    """Return ends at most `most` offsets ahead in all, shared by the backlog of each partition.

    As Spark's Kafka source does: a partition with anything left gets at least one offset,
    so that it may be a few more.
    """
    left = {partition: ends[partition] - positions[partition] for partition in ends}
    total = sum(left.values())
    if total <= most:
        return dict(ends)
    shared = {}
    for partition, size in left.items():
        share = max(1, most * size // total) if size else 0
        shared[partition] = positions[partition] + min(share, size)
    return shared


def by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Convert numbers by partition to JSON: by topic, then by partition."""
    written: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        written.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return written


def _by_partition(
    written: Mapping[str, Mapping[str, Any]], least: int = 0
) -> dict[TopicPartition, int]:
    offsets = {}
    for topic, numbers in written.items():
        for partition, offset in numbers.items():
            if type(offset) is not int or offset < least:
                raise ValueError(offset)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets
