"""Which clients the producers of a log are, where its brokers know that."""

from collections.abc import Iterable

from horolog.client import NoAnswer
from horolog.errors import RequestRefused
from horolog.jobs.parameters.shared import Reads
from horolog.jobs.selection import Selection


def producer_clients(job: Reads, producers: Iterable[int]) -> dict[int, str]:
    """The client ids of producers, by producer id, that a horolog cluster has heard.

    Files and Apache Kafka name none. Nor does a broker that does not answer: what was found does
    not depend on names.
    """
    selection, ids = Selection.asked(job), list(producers)
    if not ids or not selection.source.is_broker:
        return {}
    try:
        with selection.client() as client:
            return client.producer_clients(ids)
    except (RequestRefused, NoAnswer):
        return {}
