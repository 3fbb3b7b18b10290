"""A sentence about the open transaction that consumers of committed records wait for."""

from datetime import tzinfo

from horolog.client import HeldUp
from horolog.errors import printable
from horolog.times import format_time


def held_up_text(partition: str, held_up: HeldUp, zone: tzinfo) -> str:
    """Name the owner, the begin and the size of an open transaction."""
    producer = f"producer {held_up.producer_id}, epoch {held_up.producer_epoch}"
    whose = producer
    if held_up.transactional_id is not None:
        whose = f"{printable(held_up.transactional_id)!r} ({producer})"
    since = "" if held_up.since_ms is None else f" since {format_time(held_up.since_ms, zone)}"
    count = f"{held_up.offsets:,} offsets"
    if held_up.records is not None:
        count = f"{held_up.records:,} record{'' if held_up.records == 1 else 's'}"
    others = held_up.open_transactions - 1
    more = f", and {others:,} more {'is' if others == 1 else 'are'} open" if others > 0 else ""
    text = (
        f"consumers of committed records wait at offset {held_up.offset} of {partition} for the "
        f"transaction of {whose}, open{since}: {count} from there on{more}"
    )
    if not held_up.is_hanging:
        return text
    topic, _, index = partition.rpartition("-")
    return (
        f"{text}. It hangs: no transactional id has it. kafka-transactions.sh abort "
        f"--topic {topic} --partition {index} --start-offset {held_up.offset} ends it"
    )
