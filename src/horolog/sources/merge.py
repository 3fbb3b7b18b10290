"""Merging replicas of one partition into one log, by leader epochs.

Each replica has the leader epoch (KIP-101) in which each of its offsets was written. Of
two replicas that hold the same offset the higher epoch is right: the other one missed
an election and kept what its leader never committed. For the same reason nothing of a
lower epoch follows a higher one, nor the start of one in which nothing was written yet. Where
epochs are equal, so are the records, and the log stays with the replica that it is reading.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class EpochSpan(NamedTuple):
    """Offsets `start` to before `end` that a replica wrote in one leader epoch.

    It is empty where a leader was elected and nothing of its epoch is there.
    """

    start: int
    end: int
    epoch: int


class ReplicaStretch(NamedTuple):
    """Offsets `start` to before `end`, to be read from one replica."""

    replica: int
    start: int
    end: int


class _Choice(NamedTuple):
    epoch: int
    stays: bool
    end: int
    preference: int


def merge_replicas(replicas: Sequence[Sequence[EpochSpan]]) -> list[ReplicaStretch]:
    """Return the spans of the merged log in order, each with the place of its replica."""
    borders = sorted({edge for spans in replicas for span in spans for edge in span[:2]})
    merged: list[ReplicaStretch] = []
    newest = -1
    elections = [span for spans in replicas for span in spans if span.start == span.end]
    for start, end in pairwise(borders):
        newest = max([newest, *(span.epoch for span in elections if span.start <= start)])
        current = merged[-1].replica if merged else None
        choices = [
            _Choice(span.epoch, replica == current, span.end, -replica)
            for replica, spans in enumerate(replicas)
            for span in spans
            if span.start <= start and end <= span.end
        ]
        if not choices:
            continue
        best = max(choices)
        if best.epoch < newest:
            continue
        newest = best.epoch
        span = ReplicaStretch(-best.preference, start, end)
        if merged and merged[-1].replica == span.replica and merged[-1].end == start:
            merged[-1] = merged[-1]._replace(end=end)
        else:
            merged.append(span)
    return merged
