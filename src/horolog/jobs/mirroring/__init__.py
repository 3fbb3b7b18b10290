"""The job `mirror`: topics of a cluster, or segment files, to another or a directory (KIP-32).

    run          rounds on the driver: find new records, and let tasks move them
    ledger       position of each partition, in the state directory
    offset_map   offsets of the target by those of the source
    topics       names, partitions and settings
    known_topics topics of a run, and checks that they were not created again
    bundles      units of small partitions in one task
    cluster      destination that is a cluster
    moving       stretches of partitions in one transaction, in a task
    directory    destination that is a log directory
    keeping      stretches of partitions in a log directory, in a task
    reading      whole batches of the source
    batches      batches of the source converted for the target
    groups       committed offsets, carried over
    report       outcome of a mirror, with lags

Create times are kept. Batches move as bytes. Only their headers are rewritten, and the deltas of
records where small batches are joined.
"""

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
from horolog.jobs.mirroring.run import MirrorRun
from horolog.jobs.mirroring.topics import Renaming
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.mirror import Mirror
from horolog.jobs.selection import Selection
from horolog.jobs.state import state_of
from horolog.sources.location import Location

_MOST_BATCH_BYTES: Final = 1 << 28

__all__ = ["CarriedGroup", "Control", "Mirrored", "MirroredPartition", "mirror"]


@on_spark(Mirror)
def mirror(spark: SparkSession, job: Mirror) -> Mirrored:
    """Mirror topics: create times, keys, values, headers and the order of each partition are kept.

    Append times are the target's. Of transactions the committed records are mirrored. A killed run
    is run again with the same state directory, and neither loses nor doubles a record for readers
    of committed records: a cluster gets records and positions in transactions. A log directory gets
    the same offsets, bytes and append times; a broker that opens it adopts them.

    A dry run changes nothing and keeps no state. It reads a given state, and is refused where a run
    would be.

    Raises:
        Misconfigured: arguments are wrong, or the state directory is of another run.
        RequestRefused, NoAnswer: a cluster refuses, or does not answer. What concerns a partition
            or a topic alone is in the result.
    """
    options = {**(job.settings or {}), **({"failOnDataLoss": "false"} if job.skip_lost else {})}
    selection = Selection.asked(job, options)
    target, renaming = Location.parse(job.target, "target"), Renaming.parse(job.rename)
    if job.has_groups and not selection.source.is_broker:
        raise Misconfigured("groups have committed offsets at a broker: the source is a path")
    if job.has_groups and not target.is_broker:
        raise Misconfigured("a log directory keeps no groups: the target is a path")
    if job.batch_bytes is not None and not 0 <= job.batch_bytes <= _MOST_BATCH_BYTES:
        raise Misconfigured(f"batch_bytes={job.batch_bytes}: from 0 to {_MOST_BATCH_BYTES} can be")
    if job.batch_bytes and not target.is_broker:
        raise Misconfigured("a log directory gets the batches as they are: leave out batch_bytes")
    if job.into_nonempty and not target.is_broker:
        raise Misconfigured("a log directory gets whole logs: leave out into_nonempty")
    with ExitStack() as stack:
        if not job.dry_run:
            job.require_state()
        ledger = stack.enter_context(closing(Ledger(stack.enter_context(state_of(job, "mirror")))))
        if ledger.range_ms is None:
            ledger.range_ms = selection.from_ms, selection.to_ms
        selection = replace(selection, from_ms=ledger.range_ms[0], to_ms=ledger.range_ms[1])
        to = ClusterDestination if target.is_broker else LogDirectory
        destination = stack.enter_context(closing(to(job, target, ledger)))
        destination.check(selection, renaming)
        run = MirrorRun(spark, job, selection, destination, ledger, renaming)
        with closing(run):
            run.run()
            return run.report()
