"""State of an Apache Kafka's log directory that horolog does not take over, and the reverse.

Each start logs the groups and settings that are concerned; `horolog topics describe` reports those
of one topic. docs/moving-in-and-out.md is the user's side.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from horolog.config import DescribedSetting, Settings, describe_broker, describe_topic
from horolog.errors import listed
from horolog.metadata.adopted import AdoptedMetadata
from horolog.metadata.adopted_offsets import KafkaOffsets
from horolog.metadata.topics import Topic
from horolog.storage.names import SERVED_INTERNAL

_MOST_LINES: Final = 1_000  # of groups
_MOST_CHARACTERS: Final = 200

IsCommitted = Callable[[str, str, int], bool]
"""Whether a group has committed an offset of a topic's partition here."""


@dataclass(frozen=True, slots=True)
class LeftByKafka:
    """State that a Kafka has left in the log directory; empty without a Kafka."""

    metadata: AdoptedMetadata = field(default_factory=lambda: AdoptedMetadata({}, {}, {}, {}))
    offsets: KafkaOffsets = field(default_factory=lambda: KafkaOffsets({}, ()))
    ignored: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings by topic that its Kafka gave it and that are not obeyed here."""
    is_kafkas: bool = False
    """Whether the directory belongs to a Kafka, as its internal topics show."""

    def is_made_here(self, topic: Topic) -> bool:
        """True if the directory's Kafka does not know the topic.

        Without its metadata, which only a controller has, this is not known of any topic. Topics of
        the coordinators are not in the directory.
        """
        if topic.name in SERVED_INTERNAL:
            return False
        ids = self.metadata.topic_ids
        return self.is_kafkas and bool(ids) and ids.get(topic.name) != topic.topic_id

    def of_topic(self, topic: Topic) -> Iterator[tuple[str, int, int]]:
        """Yield group, partition and offset of each commit to Kafka, in order."""
        if topic.adopted or self.metadata.topic_ids.get(topic.name) == topic.topic_id:
            of_topic = self.offsets.of_topics.get(topic.name, {})
            for (group, index), offset in of_topic.items():
                if index in topic.partitions:
                    yield group, index, offset

    def warnings(
        self,
        topics: Collection[Topic],
        settings: Settings,
        is_committed: IsCommitted,
        made_here: Mapping[str, Iterable[str]],
    ) -> Iterator[str]:
        """Yield the warnings of a start, a sentence for each group and setting.

        Args:
            is_committed: returns whether a group has committed here.
            made_here: names of other things that only horolog's store has, by kind.
        """
        if not self.is_kafkas:
            return
        nodes = self.metadata.nodes
        if nodes - {settings.broker_config().node_id}:
            yield (
                "this directory is of a cluster of several nodes "
                f"({listed([*map(str, sorted(nodes))])}): the others have no record of what is "
                "appended or deleted here, and where its node joins them again, the logs are cut "
                "off or differ without a word. Serve a copy of it (docs/moving-in-and-out.md)"
            )
        yield from self._groups(topics, is_committed)
        yield from self._settings({topic.name for topic in topics}, settings)
        unknown = {
            "topics (their directories become *-stray)": sorted(
                topic.name for topic in topics if self.is_made_here(topic)
            ),
            **made_here,
        }
        found = [f"{what} {listed(names)}" for what, each in unknown.items() if (names := [*each])]
        yield (
            "what is made here is unknown to the Kafka that had this directory, should it be "
            f"started on it again: {'; '.join(found) or 'so far nothing'} "
            "(docs/moving-in-and-out.md)"
        )

    def _groups(self, topics: Iterable[Topic], is_committed: IsCommitted) -> Iterator[str]:
        positions: dict[str, list[str]] = {}
        for topic in topics:
            for group, index, offset in self.of_topic(topic):
                if is_committed(group, topic.name, index):
                    continue
                positions.setdefault(group, []).append(f"{topic.name}-{index} at {offset}")
        for group in sorted(positions)[:_MOST_LINES]:
            yield (
                f"group {group!r}: the offsets that it committed with Kafka are not carried over, "
                f"its consumers start by auto.offset.reset: {listed(positions[group])}"
            )
        if len(positions) > _MOST_LINES:
            yield f"offsets of {len(positions) - _MOST_LINES} more groups are not carried over"
        if self.offsets.unread:
            yield (
                "offsets that groups committed with Kafka are not carried over, and those in "
                f"{listed(self.offsets.unread)} are not known here: too large, or damaged"
            )

    def ignored_of(self, topic: str, settings: Settings) -> dict[str, str]:
        """Return the settings that Kafka gave a topic without effect here, secrets hidden."""
        shown = {}
        for name, value in sorted(self.ignored.get(topic, {}).items()):
            known = describe_topic(settings, {}, [name])
            if not known or known[0].value != value:
                shown[name] = _shown(known, value)
        return shown

    def _settings(self, topics: Iterable[str], settings: Settings) -> Iterator[str]:
        for (kind, name), given in sorted(self.metadata.others.items()):
            whose = f"{kind} {name!r}" if name else f"every {kind}"
            for setting, value in sorted(given.items()):
                known = describe_broker(settings, [setting]) if kind == "broker" else []
                if not known or known[0].value != value:
                    yield (
                        f"{setting}={_shown(known, value)} of {whose} in Kafka's metadata is not "
                        "carried over: give it to this broker, if it is to hold here"
                    )
        for topic in sorted(topics):
            for setting, value in self.ignored_of(topic, settings).items():
                yield (
                    f"{setting}={value} of topic {topic}, which Kafka's metadata has, is without "
                    "effect here"
                )
        if self.metadata.counted:
            found = [f"{count} of {what}" for what, count in sorted(self.metadata.counted.items())]
            yield f"entries of Kafka's metadata that are not carried over: {', '.join(found)}"


def _shown(known: list[DescribedSetting], value: str) -> str:
    """Return the value, unless it may be a secret, as unknown settings are for Kafka."""
    if not known or known[0].sensitive:
        return "[hidden]"
    return ascii(value[:_MOST_CHARACTERS])[1:-1]  # in one line
