"""The topic that a job sends to: its settings, and checks before anything is sent.

The jobs `mirror`, `reprocess`, `bootstrap` and `replay` use it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from horolog.client import EARLIEST, LATEST, Client, ResourceType
from horolog.client.deadline import Deadline
from horolog.client.groups import FIRST_WITH_STABLE
from horolog.errors import ErrorCode, HorologError, Misconfigured, RequestRefused
from horolog.storage.names import TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.features import APPEND_TIME

if TYPE_CHECKING:  # `horolog produce` needs no reader
    from horolog.sources.broker_log import BrokerLog
    from horolog.sources.file_log import FileLog

STAMPS = "message.timestamp.type"
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_BY, _OLD = "horolog.retention.by", "horolog.retention.before.1970"
_RETENTION_MS, _RETENTION_BYTES = "retention.ms", "retention.bytes"
_POLICY, _MAX_BYTES = "cleanup.policy", "max.message.bytes"
_UNLIMITED: Final = (1 << 63) - 1
_DEFAULTS: Final = {
    _POLICY: "delete",
    _RETENTION_MS: "604800000",
    _RETENTION_BYTES: "-1",
    STAMPS: "CreateTime",
    BEFORE: str(_UNLIMITED),
    AFTER: "3600000",
    _MAX_BYTES: "1048588",
    _BY: "create-time",
    _OLD: "false",
}
_OF_BROKER = {
    _RETENTION_BYTES: "log.retention.bytes",
    _POLICY: "log.cleanup.policy",
    STAMPS: "log.message.timestamp.type",
    BEFORE: "log.message.timestamp.before.max.ms",
    AFTER: "log.message.timestamp.after.max.ms",
    _MAX_BYTES: "message.max.bytes",
    _BY: _BY,
    _OLD: _OLD,
}


def is_horolog(client: Client) -> bool:
    """True if the cluster keeps append times beside create times, as Apache Kafka does not."""
    link = client.brokers.any(Deadline.after_ms(client.config.timeout_ms))
    return APPEND_TIME in link.features


def require_transactions(client: Client) -> None:
    """Refuse a cluster without the transactions that a job needs to continue after a kill.

    Raises:
        Misconfigured: brokers are older than Kafka 2.5: without transactions (before 0.11), or
            without a reliable answer on the offsets of an ended one (KIP-447).
        NoAnswer: no broker answers.
    """
    link = client.brokers.any(Deadline.after_ms(client.config.timeout_ms))
    try:
        link.version(ApiKey.INIT_PRODUCER_ID)
        link.version(ApiKey.TXN_OFFSET_COMMIT)
        link.version(ApiKey.OFFSET_FETCH, lowest=FIRST_WITH_STABLE)
    except RequestRefused as error:
        raise Misconfigured(
            "a job keeps its position in transactions of the target, which has none, or does not "
            "say whether the offsets of an ended one are there yet: it is an Apache Kafka before "
            f"2.5 (KIP-98, KIP-447). Nothing was sent ({error})"
        ) from None


def refuse_records(client: Client, name: str, partitions: Iterable[int]) -> None:
    """Refuse to send to partitions that contain records, since these may be the job's own.

    Raises:
        Misconfigured: a partition contains records.
        RequestRefused, NoAnswer: the cluster does not tell its log bounds.
    """
    known = [(name, number) for number in partitions]
    starts = client.list_offsets(dict.fromkeys(known, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(known, LATEST))
    held = 0
    for partition in known:
        start, end = starts[partition], ends[partition]
        if start is not None and end is not None:
            held += max(0, end.offset - start.offset)
    if held:
        raise Misconfigured(
            f"{name} of the target holds {held} offsets already, and this state directory knows "
            "nothing of them: what was sent by a run whose state is lost would be doubled. Give "
            "the --state with which they were sent, another topic, or --into-nonempty to append "
            "to what is there"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivingTopic:
    """A topic that a job sends to, with its present or future settings."""

    name: str
    partitions: int
    exists: bool
    is_horolog: bool
    settings: Mapping[str, str]

    @classmethod
    def of(
        cls, client: Client, name: str, partitions: int | None, settings: Mapping[str, str]
    ) -> "ReceivingTopic":
        """Describe a topic; a missing one gets these settings over the broker's defaults.

        Raises:
            Misconfigured: the topic does not exist, and no number of partitions is given.
            RequestRefused: the broker refuses.
            NoAnswer: the broker does not answer.
        """
        metadata = client.metadata([name])
        existing = metadata.topics.get(name)
        if existing is not None and existing.error == ErrorCode.none:
            count = len(existing.partitions)
            if partitions not in (None, count):
                raise Misconfigured(
                    f"{name} has {count} partitions, and {partitions} are asked for"
                )
            return cls.described(client, name, count)
        if partitions is None:
            raise Misconfigured(f"there is no topic {name}: give --partitions to create it")
        of_broker: dict[str, str] = {}
        for node in sorted(metadata.brokers)[:1]:
            resource = (ResourceType.BROKER, str(node))
            entries_of = client.describe_configs([resource])[resource]
            of_broker = {name: entry.value for name, entry in entries_of.items() if entry.value}
        return cls(
            name=name,
            partitions=partitions,
            exists=False,
            is_horolog=is_horolog(client),
            settings={**_DEFAULTS, **_of_broker(of_broker), **settings},
        )

    @classmethod
    def described(cls, client: Client, name: str, partitions: int) -> "ReceivingTopic":
        """Describe an existing topic."""
        described = client.describe_configs([(ResourceType.TOPIC, name)])
        entries = described[ResourceType.TOPIC, name].values()
        values = {entry.name: entry.value for entry in entries if entry.value is not None}
        return cls(
            name=name,
            partitions=partitions,
            exists=True,
            is_horolog=is_horolog(client),
            settings={**_DEFAULTS, **values},
        )

    def create(self, client: Client, settings: Mapping[str, str], *, dry_run: bool) -> None:
        """Create the topic unless it exists.

        Raises:
            RequestRefused: the broker refuses the topic, or would.
        """
        if not self.exists:
            client.create_topics(
                {self.name: self.partitions}, configs=settings, validate_only=dry_run
            )

    @property
    def stamps(self) -> bool:
        """True if the topic replaces create times by append times."""
        return self.settings[STAMPS] == "LogAppendTime"

    @property
    def compacts(self) -> bool:
        """True if the topic is compacted, so that a record needs a key."""
        return "compact" in self.settings[_POLICY]

    @property
    def max_message_bytes(self) -> int:
        """Size in bytes of the largest batch that the topic takes."""
        return int(self.settings[_MAX_BYTES])

    @property
    def retention_bytes(self) -> int:
        """Size limit of a partition in bytes; negative without a limit."""
        deletes = "delete" in self.settings[_POLICY]
        return int(self.settings[_RETENTION_BYTES]) if deletes else -1

    def limits_ms(self, now_ms: int) -> tuple[int, int]:
        """Return the smallest and the largest create time that the topic accepts now (KIP-937)."""
        if self.stamps:
            return -_UNLIMITED, _UNLIMITED
        before, after = int(self.settings[BEFORE]), int(self.settings[AFTER])
        return now_ms - before, min(_UNLIMITED, now_ms + after)

    def kept_from_ms(self, now_ms: int) -> int | None:
        """Return the create time before which retention deletes; None if it counts otherwise."""
        retention_ms = int(self.settings[_RETENTION_MS])
        counts = self.settings[_BY] == "create-time" or not self.is_horolog
        if "delete" not in self.settings[_POLICY] or retention_ms < 0 or self.stamps or not counts:
            return None
        return now_ms - retention_ms

    def deletes(self, what: str) -> str:
        """Return the start of a warning: retention deletes records, by which settings."""
        by = f", and {_BY}={self.settings[_BY]}" if self.is_horolog else ""
        return f"retention will delete {what}: {_RETENTION_MS}={self.settings[_RETENTION_MS]}{by}"

    @property
    def remedy(self) -> str:
        """Sentence that names the setting with which the topic keeps the records."""
        ours = f", or {_BY}=append-time to count from the load" if self.is_horolog else ""
        return f"Set {_RETENTION_MS}=-1 for the topic{ours}"

    @property
    def deletes_before_1970(self) -> bool:
        """True if retention also counts from times before 1970."""
        return self.is_horolog and self.settings[_OLD] == "true"


def retention_note(
    topic: ReceivingTopic,
    log: "BrokerLog | FileLog",
    name: str,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    from_ms: int | None,
    now_ms: int,
) -> str | None:
    """Warn of records to be sent that are older than the target keeps; None if none are.

    Args:
        bounds: offset ranges of the topic's partitions that are to be sent.
        from_ms: smallest create time that is sent; None for all.
    """
    kept_ms = topic.kept_from_ms(now_ms)
    if kept_ms is None or (from_ms is not None and from_ms >= kept_ms):
        return None
    # All before the first record that is kept are older; some of those behind it may be, too.
    older = 0
    with suppress(HorologError):  # who reads the partition says it
        kept = log.at_or_after(dict.fromkeys(bounds, max(0, kept_ms)))
        for partition, (start, end) in bounds.items():
            first = kept[partition]
            if first is None and log.time_at(partition, start) is None:
                continue  # records without times, as of format v0, are kept by other rules
            older += max(0, (end if first is None else min(first, end)) - start)
    if not older:
        return None
    total = sum(end - start for start, end in bounds.values())
    what = f"{older} of the {total} offsets of {name} at the source"
    return f"{topic.deletes(what)}. {topic.remedy}"


def _of_broker(settings: Mapping[str, str]) -> dict[str, str]:
    values = {ours: settings[theirs] for ours, theirs in _OF_BROKER.items() if theirs in settings}
    for name, factor in (
        ("log.retention.hours", 3_600_000),
        ("log.retention.minutes", 60_000),
        ("log.retention.ms", 1),
    ):
        if settings.get(name, "").lstrip("-").isdecimal():
            number = int(settings[name])
            values[_RETENTION_MS] = str(number * factor if number >= 0 else -1)
    return values
