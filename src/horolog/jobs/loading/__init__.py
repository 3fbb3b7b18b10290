"""Job `bootstrap`: loads a table into a topic, with the times of its rows (KIP-33, use case 2).

    run        the steps of a load, each done once for a state directory
    rows       which record each row becomes
    survey     what the topic would refuse or delete of them, before any is sent
    staging    the records as segment files, written once, by partition and in order

The files are then mirrored (`mirroring`): to horolog and to Apache Kafka, without loss and without
doubling, whenever a run is killed.
"""

from pyspark.sql import SparkSession

from horolog.errors import Misconfigured, RequestRefused
from horolog.jobs.loading.rows import RowRules
from horolog.jobs.loading.run import Bootstrapped, Load
from horolog.jobs.parameters.bootstrap import Bootstrap
from horolog.jobs.parameters.function import on_spark
from horolog.jobs.parameters.option import names
from horolog.jobs.parameters.shared import codec_of
from horolog.jobs.state import state_of
from horolog.metadata.topics import check_name
from horolog.sources.location import Location
from horolog.storage.names import INTERNAL_TOPICS

__all__ = ["Bootstrapped", "bootstrap"]


@on_spark(Bootstrap)
def bootstrap(spark: SparkSession, job: Bootstrap) -> Bootstrapped:
    """Load a table into a topic: one record for each row, with the time of the row.

    The table is read once and written down as segment files, by partition and in order; these are
    sent. So a run that was killed is run again with the same state directory, and neither loses
    nor doubles a record, at horolog and at Apache Kafka; a kill before all is written down begins
    with the table anew, when nothing was sent. A state directory is of one load: run again after
    it has ended, nothing happens. It is refused where the topic was deleted since.

    Raises:
        Misconfigured: an argument that cannot be, or a state of another run or of a topic that was
            deleted since.
        RequestRefused, NoAnswer: the broker refuses, or does not answer.
    """
    location = Location.parse(job.target, "target")
    try:
        check_name(job.topic)
    except RequestRefused as error:
        raise Misconfigured(str(error)) from None
    if job.topic in INTERNAL_TOPICS:
        raise Misconfigured(f"{job.topic} is a topic that Kafka keeps for itself")
    codec = codec_of(job.compression)
    if not job.dry_run:
        job.require_state()
    rules = RowRules(
        time=job.time,
        unit=job.unit,
        zone=job.tz,
        key=tuple(names(job.key)),
        value=job.value,
        value_columns=tuple(names(job.value_columns)),
        headers=tuple((job.headers or {}).items()),
        tombstone_when=job.tombstone_when,
        partition_column=job.partition_column,
        order_by=tuple(names(job.order_by)),
    )
    with state_of(job, "bootstrap") as state:
        return Load(spark, job, location, rules, codec).run(state)
