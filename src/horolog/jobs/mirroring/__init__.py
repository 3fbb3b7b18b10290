"""The job `mirror`: topics of a cluster, or segment files, to another or a directory (KIP-32).

    run          rounds on the driver: what is new, units, what they did
    ledger       how far each partition is mirrored, in the state directory
    offset_map   which offset of the target a record went to
    topics       names, partitions and settings
    known_topics those of a run, and whether they are still the same
    destination  what is needed of a target
    bundles      units of small partitions in one task
    cluster      a cluster as the target
    moving       a stretch of a partition, in a task
    sent_before  what an attempt has sent that is not written down
    directory    a log directory as the target
    keeping      a stretch of a partition, in a task: the same bytes at the same offsets
    reading      whole batches of the source
    batches      what a batch of the source becomes
    groups       committed offsets, carried over
    report       what was done, and the lag

Create times are kept. Batches move as bytes; only their headers are written anew, and where small
ones are joined, the deltas of their records.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession

from horolog.errors import Misconfigured
from horolog.jobs.mirroring.cluster import ClusterDestination
from horolog.jobs.mirroring.directory import LogDirectory
from horolog.jobs.mirroring.groups import CarriedGroup
from horolog.jobs.mirroring.ledger import Ledger
from horolog.jobs.mirroring.report import Control, Mirrored, MirroredPartition
from horolog.jobs.mirroring.run import GroupsCarried, Run
from horolog.jobs.mirroring.topics import Renaming
from horolog.jobs.selection import Moment, Selection
from horolog.jobs.state import DocumentsOnly, JobState, look_at_state
from horolog.sources.location import Location

_MOST_BATCH_BYTES: Final = 1 << 28

__all__ = ["CarriedGroup", "Control", "Mirrored", "MirroredPartition", "mirror"]


def mirror(
    spark: SparkSession,
    *,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    state: str | os.PathLike[str] | None = None,
    topics: str | Iterable[str] | None = None,
    topics_pattern: str | None = None,
    from_: Moment | None = None,
    to: Moment | None = None,
    settings: Mapping[str, str] | None = None,
    target_settings: Mapping[str, str] | None = None,
    topic_settings: Mapping[str, str] | None = None,
    rename: str | None = None,
    groups: str | Iterable[str] | None = None,
    groups_pattern: str | None = None,
    batch_bytes: int | None = None,
    replace_create_times: bool = False,
    into_nonempty: bool = False,
    skip_lost: bool = False,
    once: bool = True,
    dry_run: bool = False,
    control: Control | None = None,
) -> Mirrored:
    """Mirror topics: create times, keys, values, headers and the order of each partition are kept.

    Append times are the target's. Of transactions the committed records are mirrored. A run that
    was killed is run again with the same state directory, and neither loses nor doubles a record:
    the target drops what it has, and what it forgot is found in its log (`moving`). Where that
    cannot be known, because the target has removed it or the source has been compacted or created
    again since, the partition stops with an error.

    Args:
        spark: the session.
        source: `host:port` of a broker, or a path of segment files.
        target: `host:port` of a broker, or a log directory, which gets the same offsets, bytes and
            append times; a broker that opens it adopts them.
        state: the directory where the mirror keeps its progress and the maps of offsets.
        topics: names, with commas or as a list.
        topics_pattern: a regular expression of Java's for whole names; topics that appear later
            are mirrored, too.
        from_: only records with a time from this one on.
        to: only records with a time before this one.
        settings: of the source by name, `kafka.*` and those of object stores.
        target_settings: the same of the target.
        topic_settings: settings of topics that are created, above those of the source; an empty
            value leaves one to the target.
        rename: `PATTERN=REPLACEMENT`, a regular expression for whole names.
        groups: groups whose committed offsets are carried over.
        groups_pattern: or a regular expression of Java's for their names.
        batch_bytes: send successive batches of a partition as one of up to this many bytes before
            compression, and no more than the target's topic takes; 0 leaves each as it is. A
            batch of more than half of that stays as it is. By default 512 KiB, and compressed
            batches stay as they are. Keys, values, headers, times, order and the maps of offsets
            are the same either way.
        replace_create_times: mirror into topics of LogAppendTime, which replace create times.
        into_nonempty: append to partitions of the target that hold records of which `state` knows
            nothing. Without it they are refused: after a state was lost all would come twice.
        skip_lost: continue after records that the source has deleted before they were mirrored.
        once: stop at the ends that the logs have at the start, or else run until `control` ends
            it.
        dry_run: change nothing and keep no state; say what would happen. A state that is given is
            looked at: a run that it would refuse is refused.
        control: how the caller follows and ends it.

    Raises:
        Misconfigured: arguments that cannot be, or a state directory of another run.
        RequestRefused, NoAnswer: a cluster refuses, or does not answer. What concerns a partition
            or a topic alone is in the result.
    """
    options = {**(settings or {}), **({"failOnDataLoss": "false"} if skip_lost else {})}
    selection = Selection.of(source, topics, topics_pattern, from_, to, options)
    to_location, renaming = Location.parse(target, "target"), Renaming.parse(rename)
    names = groups.split(",") if isinstance(groups, str) else groups or ()
    chosen = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    if (chosen or groups_pattern is not None) and not selection.source.is_broker:
        raise Misconfigured("groups have committed offsets at a broker: the source is a path")
    if (chosen or groups_pattern is not None) and not to_location.is_broker:
        raise Misconfigured("a log directory keeps no groups: the target is a path")
    if batch_bytes is not None and not 0 <= batch_bytes <= _MOST_BATCH_BYTES:
        raise Misconfigured(f"batch_bytes={batch_bytes}: from 0 to {_MOST_BATCH_BYTES} can be")
    if batch_bytes and not to_location.is_broker:
        raise Misconfigured("a log directory gets the batches as they are: leave out batch_bytes")
    if state is None and not dry_run:
        raise Misconfigured("give a state directory, or dry_run")
    if into_nonempty and not to_location.is_broker:
        raise Misconfigured("a log directory gets whole logs: leave out into_nonempty")
    with ExitStack() as stack:
        kept: JobState | DocumentsOnly | None = None
        if state is not None:
            arguments = {
                "source": selection.source.normalised,
                "target": to_location.normalised,
                "topics": list(selection.topics),
                "topics_pattern": topics_pattern,
                "from": _given(from_),
                "to": _given(to),
                "rename": rename,
            }
            if dry_run:
                kept = look_at_state(state, "mirror", arguments)
            else:
                kept = stack.enter_context(JobState(state, "mirror", arguments))
        ledger = stack.enter_context(closing(Ledger(kept)))
        if ledger.range_ms is None:
            ledger.range_ms = selection.from_ms, selection.to_ms
        selection = replace(selection, from_ms=ledger.range_ms[0], to_ms=ledger.range_ms[1])
        destination: ClusterDestination | LogDirectory
        if to_location.is_broker:
            destination = ClusterDestination(
                to_location,
                target_settings or {},
                ledger,
                topic_settings=topic_settings or {},
                batch_bytes=batch_bytes,
                replaces_create_times=replace_create_times,
                into_nonempty=into_nonempty,
                dry_run=dry_run,
            )
        else:
            destination = LogDirectory(to_location, ledger, dry_run=dry_run)
        stack.enter_context(closing(destination))
        destination.check(selection, renaming)
        run = Run(spark, selection, destination, ledger, renaming, control or Control())
        stack.enter_context(closing(run))
        carried = None
        if chosen or groups_pattern is not None:
            assert isinstance(destination, ClusterDestination)
            carried = GroupsCarried(chosen, groups_pattern, destination.client)
        if dry_run:
            run.look()
        elif once:
            run.once()
        else:
            run.go_on(carried)
        if carried is not None and not dry_run:
            run.carry(carried)
        if not dry_run:
            run.finish()
        return run.report(is_dry_run=dry_run)


def _given(moment: Moment | None) -> str | int | None:
    """A time as the state keeps it: what was given, so that a relative one stays the same."""
    return moment if moment is None or isinstance(moment, int) else str(moment)
