"""Topics of a mirror: their names at the target, and checks that they were not created again.

A topic that was deleted and created again, at either side, has another id. Its offsets mean other
records, so it is no longer mirrored.
"""

from collections.abc import Collection, Iterable, Mapping

from horolog.client import Client
from horolog.client.topic_facts import topic_ids
from horolog.errors import HorologError
from horolog.jobs.mirroring.cluster import ClusterDestination
from horolog.jobs.mirroring.directory import LogDirectory
from horolog.jobs.mirroring.ledger import Ledger, LedgerTopic
from horolog.jobs.mirroring.moving import may_pass
from horolog.jobs.mirroring.topics import (
    Renaming,
    SourceTopic,
    TargetTopic,
    check_names,
    describe,
    source_topics,
)
from horolog.jobs.selection import Selection
from horolog.metadata.topics import check_name
from horolog.storage.directory.checkpoints import decode_uuid
from horolog.storage.names import TopicPartition

Destination = ClusterDestination | LogDirectory


class KnownTopics:
    """Topics of one run of a mirror, with the reasons why some are not mirrored."""

    def __init__(
        self,
        selection: Selection,
        source: Client | None,
        destination: Destination,
        ledger: Ledger,
        renaming: Renaming,
    ) -> None:
        """Begin without topics; `source` is None where files are read."""
        self._selection = selection
        self._source = source
        self._to = destination
        self._ledger = ledger
        self._renaming = renaming
        self._known: dict[str, TargetTopic] = {}
        self.failed: dict[str, str] = {}
        """Reasons why topics are not mirrored, by name."""
        self.notes: dict[str, None] = {}

    def get(self, topic: str) -> TargetTopic | None:
        """Return the target topic of a source topic; None if it is not mirrored in this run."""
        return self._known.get(topic)

    def is_open(self, topic: str) -> bool:
        """True if the topic is mirrored, and has not failed."""
        return topic in self._known and topic not in self.failed

    def targets(self) -> dict[str, str]:
        """Return the target's topic names by those of the source."""
        return {name: target.name for name, target in self._known.items()}

    def without_own(self, listed: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions except those that this mirror writes itself.

        Raises:
            Misconfigured: two topics would be mirrored into one.
            RequestRefused: a name is invalid for a topic.
        """
        partitions = sorted(listed)
        names = {partition.topic for partition in partitions}
        for name in names:
            check_name(name)
        targets = {name: self._renaming(name) for name in names}
        own = self._to.excluded(targets.values()) if self._selection.topics_pattern else ()
        targets = {name: target for name, target in targets.items() if name not in own}
        check_names(targets)
        return [partition for partition in partitions if partition.topic in targets]

    def learn(
        self, partitions: Collection[TopicPartition], ids_of_files: Mapping[str, str]
    ) -> None:
        """Prepare new topics at the target, and fail topics that were deleted or created again.

        Args:
            ids_of_files: topic ids in Kafka's form, where the source is files.
        """
        counts: dict[str, int] = {}
        for topic, number in partitions:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        names = counts.keys() - self.failed.keys()
        ids: Mapping[str, str | None]
        if self._source is not None:
            ids = topic_ids(self._source, names | self._known.keys())
        else:
            ids = {name: str(decode_uuid(topic_id)) for name, topic_id in ids_of_files.items()}
        at_target = self._to.ids([*self.targets().values()])
        for name, known in self._known.items():
            if name not in self.failed:
                self._check_ids(name, known.name, ids, at_target)
        new = [
            name
            for name in sorted(names - self.failed.keys())
            if name not in self._known or self._known[name].partitions < counts[name]
        ]
        if self._source is not None:
            described = source_topics(self._source, new)
        else:
            described = {name: SourceTopic(name, counts[name], ids.get(name)) for name in new}
        for topic_at_source in described.values():
            self._prepare(topic_at_source)

    def _prepare(self, source: SourceTopic) -> None:
        target_name = self._renaming(source.name)
        at_source = {source.name: source.topic_id}
        state = self._ledger.topics.get(source.name)
        try:
            check_name(target_name)
            if state is not None:  # a topic that is gone is not created again
                self._check_ids(source.name, target_name, at_source, self._to.ids([target_name]))
                if source.name in self.failed:
                    return
            target = self._to.prepare(source, target_name)
        except HorologError as error:
            if may_pass(error):
                raise
            self.failed[source.name] = describe(error, [source.name, target_name])
            return
        self.notes.update(dict.fromkeys(target.notes))
        if state is None:
            state = LedgerTopic(target.name, source.topic_id, target.topic_id)
            self._ledger.topics[source.name] = state
        self._known[source.name] = target

    def _check_ids(
        self,
        name: str,
        target: str,
        at_source: Mapping[str, str | None],
        at_target: Mapping[str, str | None],
    ) -> None:
        state = self._ledger.topics[name]
        if self._source is not None and name not in at_source:
            self.failed[name] = f"{name} of the source was deleted"
        elif (
            None not in (source_ids := (at_source.get(name), state.source_id))
            and source_ids[0] != source_ids[1]
        ):
            self.failed[name] = (
                f"{name} of the source was deleted and created again: its offsets mean other "
                "records now. Mirror it into another topic, with another --state"
            )
        elif target not in at_target or at_target[target] != state.target_id:
            self.failed[name] = (
                f"{target} of the target was deleted or created again since the mirror wrote to "
                "it. Mirror with another --state"
            )
        elif state.source_id is None:
            state.source_id = at_source.get(name)  # of a mirror that began before there was one
