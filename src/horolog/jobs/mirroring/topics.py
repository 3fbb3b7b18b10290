"""Topics of the source, and the names, partitions and settings of their target topics."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from horolog.client import Client, ResourceType, TopicMetadata
from horolog.client.deadline import Deadline
from horolog.client.topic_facts import known_id
from horolog.errors import ErrorCode, HorologError, Misconfigured, RequestRefused
from horolog.jobs.parameters.mirror import Mirror
from horolog.jobs.receiving import ReceivingTopic, is_horolog, refuse_records
from horolog.patterns import NamePattern

TIMESTAMP_TYPE = "message.timestamp.type"
_OURS = "horolog."
_OF_TOPIC = 1  # the source of a setting that the topic itself has
_TOPIC_MAX_BYTES = "max.message.bytes"
_BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_OF_CLUSTERS = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Topic settings that depend on the number and the ids of brokers."""
_ASK_AGAIN_S = 0.1
_UNLIMITED = str((1 << 63) - 1)
_REFERENCE = re.compile(r"\\(?:([1-9][0-9]?)|g<(\w+)>|(\\)|.?)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Renaming:
    r"""A rule `PATTERN=REPL` for topic names; the replacement may use groups (`\1`, `\g<name>`)."""

    pattern: str = ""
    replacement: str = ""
    _compiled: NamePattern | None = field(default=None, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str | None) -> "Renaming":
        """Parse the value of `--rename`.

        Raises:
            Misconfigured: the pattern is invalid, or the replacement is empty.
        """
        if text is None:
            return cls()
        pattern, equals, replacement = text.partition("=")
        if not equals or not pattern or not replacement:
            raise Misconfigured(f"rename {text!r}: write PATTERN=REPLACEMENT, as '(.*)=west.\\1'")
        try:
            compiled = NamePattern(pattern, captures=True)
            _expand(replacement, dict.fromkeys(compiled.group_names, ""))
        except ValueError as error:
            raise Misconfigured(f"rename {text!r}: {error}") from None
        return cls(pattern, replacement, compiled)

    def __call__(self, topic: str) -> str:
        """Return the topic's name at the target; a topic that does not match keeps its name."""
        groups = None if self._compiled is None else self._compiled.groups(topic)
        return topic if groups is None else _expand(self.replacement, groups)


def _expand(replacement: str, groups: Mapping[str | int, str]) -> str:
    """Return the replacement with its references replaced by the matched groups.

    Raises:
        ValueError: a reference names no group, or an escape is unknown.
    """

    def text(escape: re.Match[str]) -> str:
        number, name, backslash = escape.groups()
        if backslash:
            return "\\"
        key = name if number is None else number
        if key is None:
            raise ValueError(f"{escape[0]} refers to no group: write \\1 or \\g<name>")
        captured = groups.get(int(key) if key.isdecimal() else key)
        if captured is None:
            raise ValueError(f"{escape[0]} refers to a group that the pattern does not have")
        return captured

    return _REFERENCE.sub(text, replacement)


@dataclass(slots=True)
class SourceTopic:
    """A topic at the source, with its own settings."""

    name: str
    partitions: int
    topic_id: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Settings that the topic itself has."""
    stamps: bool = False
    """True if its timestamps are append times."""
    max_bytes: int | None = None


@dataclass(slots=True)
class TargetTopic:
    """Topic to which a topic of the source is mirrored."""

    name: str
    partitions: int
    topic_id: str | None
    stamps: bool
    """True if timestamps at the target are append times."""
    receiving: ReceivingTopic | None = None
    """Settings at the target cluster; None in a log directory."""
    notes: list[str] = field(default_factory=list)

    @property
    def max_bytes(self) -> int | None:
        """Size in bytes of the largest batch that the topic takes; None without a limit."""
        return None if self.receiving is None else self.receiving.max_message_bytes


def source_topics(client: Client, names: Iterable[str]) -> dict[str, SourceTopic]:
    """Describe topics of a cluster; deleted topics are left out."""
    asked = sorted(names)
    by_name = {
        name: SourceTopic(name, len(topic.partitions), known_id(topic))
        for name, topic in client.metadata(asked).topics.items()
        if topic.error == ErrorCode.none
    }
    described = client.describe_configs([(ResourceType.TOPIC, name) for name in by_name])
    for (_, name), entries in described.items():
        topic = by_name[name]
        topic.settings = {
            entry.name: entry.value
            for entry in entries.values()
            if entry.source == _OF_TOPIC and entry.value is not None and not entry.is_read_only
        }
        stamped = entries.get(TIMESTAMP_TYPE)
        topic.stamps = stamped is not None and stamped.value == "LogAppendTime"
        largest = entries.get(_TOPIC_MAX_BYTES)
        topic.max_bytes = None if largest is None else int(largest.value or 0)
    return by_name


class TargetTopics:
    """Creates and checks the topics of a target cluster."""

    def __init__(self, client: Client, job: Mirror) -> None:
        self._client = client
        self._job = job

    def prepare(self, source: SourceTopic, name: str, new: Iterable[int]) -> TargetTopic:
        """Create the topic, or add the partitions that it lacks, and check its settings.

        Args:
            new: partitions that the mirror's state does not contain.

        Raises:
            RequestRefused: the target refuses the topic, or would.
            Misconfigured: the topic's settings would change the records, or new partitions contain
                some.
        """
        notes: list[str] = []
        known, dry_run = self._known(name), self._job.dry_run
        settings = self._target_settings(source, notes)
        if known is None:
            self._create(source, name, settings)
            if not dry_run:
                known = self._once_there(name, source.partitions)
        elif not self._job.into_nonempty:
            refuse_records(self._client, name, set(new) & set(known.partitions))
        if known is None:
            receiving = ReceivingTopic.of(self._client, name, source.partitions, settings)
        else:
            before = len(known.partitions)
            if before < source.partitions:
                notes.append(
                    f"{name} of the target has {before} partitions and gets {source.partitions}, "
                    f"as {source.name} has: what others send to it goes to other partitions from "
                    "then on"
                )
                self._client.create_partitions({name: source.partitions}, validate_only=dry_run)
                if not dry_run:
                    known = self._once_there(name, source.partitions)
            receiving = ReceivingTopic.described(
                self._client, name, max(len(known.partitions), source.partitions)
            )
        if receiving.stamps and not source.stamps and not self._job.replace_create_times:
            raise Misconfigured(
                f"{name} of the target has {TIMESTAMP_TYPE}=LogAppendTime, and would replace the "
                f"create times of {source.name} by the times of mirroring. Change that, or give "
                "--replace-create-times"
            )
        notes += _warnings(source, name, receiving.settings)
        topic_id = None if known is None else known_id(known)
        return TargetTopic(name, receiving.partitions, topic_id, receiving.stamps, receiving, notes)

    def _known(self, name: str) -> TopicMetadata | None:
        topic = self._client.metadata([name]).topics.get(name)
        return topic if topic is not None and topic.error == ErrorCode.none else None

    def _once_there(self, name: str, partitions: int) -> TopicMetadata:
        """Wait until the brokers know a topic with all its partitions.

        Raises:
            RequestRefused: the brokers do not know the topic in time.
        """
        deadline = Deadline.after_ms(self._client.config.timeout_ms)
        while True:
            known = self._known(name)
            if known is not None and len(known.partitions) >= partitions:
                return known
            if not deadline.left_s():
                raise RequestRefused(
                    ErrorCode.unknown_topic_or_partition,
                    f"{name} was created at the target, and its brokers do not know it yet",
                )
            time.sleep(_ASK_AGAIN_S)

    def _target_settings(self, source: SourceTopic, notes: list[str]) -> dict[str, str]:
        settings = {
            name: value for name, value in source.settings.items() if name not in _OF_CLUSTERS
        }
        ours = sorted(name for name in settings if name.startswith(_OURS))
        if ours and not is_horolog(self._client):
            for name in ours:
                del settings[name]
            notes.append(
                f"{source.name}: {', '.join(ours)} is not carried over: Apache Kafka has no such "
                "setting"
            )
        for name, value in (self._job.topic_settings or {}).items():
            if value:
                settings[name] = value
            else:
                settings.pop(name, None)
        return settings

    def _create(self, source: SourceTopic, name: str, settings: Mapping[str, str]) -> None:
        try:
            self._client.create_topics(
                {name: source.partitions}, configs=settings, validate_only=self._job.dry_run
            )
        except RequestRefused as error:
            if error.code == ErrorCode.topic_already_exists:
                return  # another run, or a request whose answer was lost
            hint = ""
            if error.code in (ErrorCode.invalid_config, ErrorCode.invalid_request) and settings:
                hint = (
                    ". --topic-set NAME=VALUE changes a setting of topics that are created, "
                    "--topic-set NAME= leaves it to the target"
                )
            raise RequestRefused(error.code, f"{error}{hint}") from None


def _warnings(source: SourceTopic, name: str, values: Mapping[str, str]) -> Iterable[str]:
    """Warn of settings by which the target refuses batches or times that the source accepts."""
    largest = int(values.get(_TOPIC_MAX_BYTES) or 0)
    if source.max_bytes and largest and largest < source.max_bytes:
        yield (
            f"{name}: {_TOPIC_MAX_BYTES} is {largest} at the target and {source.max_bytes} at the "
            "source; a larger batch would be refused and stop its partition"
        )
    for setting in _BOUNDS:
        limit = values.get(setting, _UNLIMITED)
        if limit not in (_UNLIMITED, source.settings.get(setting, _UNLIMITED)):
            yield f"{name}: {setting}={limit} at the target refuses records with times beyond that"


def check_names(targets: Mapping[str, str]) -> None:
    """Refuse to mirror two topics into one.

    Raises:
        Misconfigured: two topics have one name at the target.
    """
    by_name: dict[str, str] = {}
    for source, target in sorted(targets.items()):
        other = by_name.setdefault(target, source)
        if other != source:
            raise Misconfigured(f"{other} and {source} would both be mirrored to {target}")


def describe(error: HorologError, names: Sequence[str]) -> str:
    """Return the sentence of an error; it begins with the topic unless it contains the name."""
    text = str(error)
    return text if any(name in text for name in names) else f"{names[0]}: {text}"
