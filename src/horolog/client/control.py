"""What horolog's brokers answer and Apache Kafka's do not, by the table in `wire/questions.py`."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from horolog.client.configs import alter, describe_request, refuse_any
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, RequestRefused
from horolog.history import (
    AskGroupHistory,
    AskTopicHistory,
    GroupHistory,
    TopicHistory,
)
from horolog.offsets import OffsetRange, TopicPartition
from horolog.wire import questions
from horolog.wire.api import ApiKey
from horolog.wire.malformed import MalformedResponse
from horolog.wire.questions import Action, GivesT, Question, TakesT

__all__ = ["ControlCalls"]

MOST_QUESTIONS: Final = 500  # in one request
_MOST_PRODUCERS: Final = 300  # in one question
_MOST_TOPICS: Final = 25  # of long names, in one question or action
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

_LinkOf: TypeAlias = Callable[[TopicPartition, Deadline], Link]


class ControlCalls(RetriedCalls):
    """Questions that horolog's brokers answer and Apache Kafka's do not, and what they do."""

    def time_ranges_of(
        self,
        where: Mapping[TopicPartition, tuple[int, int]],
        first_ms: int | None,
        last_ms: int | None,
        *,
        clock: questions.RangeClock = questions.RangeClock.RECORD,
    ) -> dict[TopicPartition, list[OffsetRange] | None]:
        """The offsets of partitions that may hold records of a time, in order.

        In one request to each leader, and to all at a time.

        Args:
            where: for each partition where to begin and where to stop.
            first_ms: the first time that is looked for, None without a limit.
            last_ms: the last one.
            clock: whose time it is.

        Returns:
            None of a partition whose broker does not know (Apache Kafka's): every offset may.

        Raises:
            RequestRefused: for one partition, which it names.
            NoAnswer: no broker answers.
        """
        first = _INT64_MIN if first_ms is None else first_ms
        last = _INT64_MAX if last_ms is None else last_ms
        asks = {
            each: questions.AskTimeRanges(each[1], clock, first, last, start, end)
            for each, (start, end) in where.items()
            if start < end
        }
        found: dict[TopicPartition, list[OffsetRange] | None] = {each: [] for each in where}
        for each, answer in self._of_leaders(questions.TIME_RANGES, asks).items():
            found[each] = None if answer is None else list(answer.ranges)
        return found

    def lookup_way(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> questions.LookupReport | None:
        """How the broker finds the offset of a time; None from one that does not report it.

        Raises:
            RequestRefused: there is no such partition, or another refusal.
            NoAnswer: no broker answers.
        """
        return self._of_leader(
            questions.LOOKUP_WAY, topic, partition, questions.AskLookup(partition, timestamp_ms)
        )

    def retention(
        self,
        topic: str,
        partition: int,
        *,
        now_ms: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> questions.RetentionReport | None:
        """What retention does about each segment, and when; None if the broker cannot report it.

        Args:
            topic: its name.
            partition: of the topic.
            now_ms: the time of the question, by default the broker's.
            settings: to be tried, in the place of the topic's.

        Raises:
            RequestRefused: there is no such partition, a setting is invalid, or another refusal.
            NoAnswer: no broker answers.
        """
        ask = questions.AskRetention(partition, now=now_ms, settings=settings or {})
        return self._of_leader(questions.RETENTION, topic, partition, ask)

    def times(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, questions.PartitionTimes | None]:
        """What is known of the times of partitions' records; no record is read.

        Returns:
            None for those whose leader does not report it (Apache Kafka's).

        Raises:
            RequestRefused: for one partition, which it names.
            NoAnswer: no broker answers.
        """
        return self._of_leaders(
            questions.TIMES, {each: questions.AskPartition(each[1]) for each in partitions}
        )

    def cleaning(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, questions.PartitionCleaning | None]:
        """How far partitions are compacted, and what the cleaner's last run over each did.

        Returns:
            None for those whose leader does not report it (Apache Kafka's).

        Raises:
            RequestRefused: for one partition, which it names.
            NoAnswer: no broker answers.
        """
        return self._of_leaders(
            questions.CLEANING, {each: questions.AskPartition(each[1]) for each in partitions}
        )

    def group_lag(
        self,
        groups: Sequence[str],
        *,
        clock: questions.LagClock = questions.LagClock.APPEND,
        read_committed: bool = False,
    ) -> dict[str, list[questions.GroupPartitionLag] | None]:
        """How far groups are behind in the partitions that they have committed offsets of.

        Args:
            groups: their ids; one that has committed nothing has no partitions.
            clock: whose time the lag is measured by.
            read_committed: they read up to last stable offsets.

        Returns:
            None for each group where a broker does not report it (Apache Kafka's).

        Raises:
            RequestRefused: of a group, which it names.
            NoAnswer: no broker answers.
        """
        asks = {(group, -1): questions.AskGroupLag(clock, read_committed) for group in groups}
        answers = self._answers(
            questions.GROUP_LAG, asks, lambda each, deadline: self.brokers.any(deadline)
        )
        return {
            group: None if answer is None else [each._replace(group=group) for each in answer.lags]
            for (group, _), answer in answers.items()
        }

    def unread_deleted(
        self, topic: str, partition: int, *, settings: Mapping[str, str] | None = None
    ) -> list[questions.GroupUnread] | None:
        """What retention deletes before groups read it; None from a broker that cannot report it.

        Args:
            topic: its name.
            partition: of the topic.
            settings: to be tried, in the place of the topic's.

        Raises:
            RequestRefused: there is no such partition, a setting is invalid, or another refusal.
            NoAnswer: no broker answers.
        """
        ask = questions.AskUnread(partition, settings=settings or {})
        found = self._of_leader(questions.RETENTION_UNREAD, topic, partition, ask)
        return None if found is None else list(found.unread)

    def refused(self, topic: str) -> list[questions.RefusedRecords] | None:
        """What a broker has refused of a topic since it started; None from one that does not say.

        Raises:
            RequestRefused: there is no such topic.
            NoAnswer: no broker answers.
        """
        found = self._of_broker(questions.REFUSED, topic, questions.AskNothing())
        return None if found is None else list(found.refused)

    def left_behind(self, topic: str, partition: int = 0) -> questions.LeftBehind | None:
        """What is not carried over from a Kafka; None from a broker that does not report it.

        Args:
            topic: its name.
            partition: one that it has; its leader is asked.

        Raises:
            RequestRefused: there is no such partition, or another refusal.
            NoAnswer: no broker answers.
        """
        return self._of_leader(questions.LEFT_BEHIND, topic, partition, questions.AskEntries())

    def topic_history(self, ask: AskTopicHistory) -> TopicHistory | None:
        """How a topic has changed, deleted ones too; None from a broker that cannot say it.

        Args:
            ask: the topic, and which of its changes.

        Raises:
            RequestRefused: the broker refuses.
            NoAnswer: no broker answers.
        """
        return self._of_broker(questions.HISTORY_TOPIC, "", ask)

    def group_history(self, group: str, ask: AskGroupHistory) -> GroupHistory | None:
        """What a group has committed and when; None from a broker that cannot say it.

        Args:
            group: its id.
            ask: which of its changes.

        Raises:
            RequestRefused: the broker refuses.
            NoAnswer: no broker answers.
        """
        return self._of_broker(questions.HISTORY_GROUP, group, ask)

    def producer_clients(self, producers: Iterable[int]) -> dict[int, str]:
        """The client ids of idempotent producers, by producer id, of those that are known.

        A broker knows those that have appended to it since it started; Apache Kafka's none.

        Raises:
            RequestRefused: a broker refuses.
            NoAnswer: a broker does not answer.
        """
        ids = tuple(dict.fromkeys(producers))
        nodes = self._persist(lambda deadline: self.brokers.metadata([], deadline)).brokers
        asks = {
            (str(node), first): questions.AskProducerClients(ids[first : first + _MOST_PRODUCERS])
            for node in nodes
            for first in range(0, len(ids), _MOST_PRODUCERS)
        }
        answers = self._answers(
            questions.PRODUCER_CLIENTS,
            asks,
            lambda each, deadline: self.brokers.node(int(each[0]), deadline),
        )
        found = [its for answer in answers.values() if answer is not None for its in answer.clients]
        found.sort(key=lambda its: its.epoch)
        return {its.producer_id: its.client_id for its in found}

    def health(self) -> dict[int, questions.Health | None]:
        """What is wrong with each broker, by its id; None of one that does not say it (Kafka's).

        Raises:
            RequestRefused: a broker refuses.
            NoAnswer: a broker does not answer.
        """
        nodes = self._persist(lambda deadline: self.brokers.metadata([], deadline)).brokers
        asks = {(str(node), -1): questions.AskEntries() for node in nodes}
        found = self._answers(
            questions.HEALTH, asks, lambda each, deadline: self.brokers.node(int(each[0]), deadline)
        )
        return {int(node): answer for (node, _), answer in found.items()}

    def why_offline(self) -> dict[str, str]:
        """Why partitions of a broker are offline, by their names; nothing from Apache Kafka's.

        Raises:
            RequestRefused: the broker refuses.
            NoAnswer: no broker answers.
        """
        found = self._of_broker(questions.HEALTH, "", questions.AskEntries())
        wrong = () if found is None else found.wrong
        return {each.subject: each.text for each in wrong if each.kind == "offline"}

    def following(self) -> questions.Following | None:
        """Which cluster a broker follows, and how far; None from one that never does (Kafka's).

        Raises:
            RequestRefused: it refuses.
            NoAnswer: no broker answers.
        """
        return self._of_broker(questions.FOLLOWING, "", questions.AskEntries())

    def promoted(self, topics: Sequence[str] = ()) -> list[questions.PromotedEntry] | None:
        """What promotions have done since the start of a broker; None from one that has none.

        Args:
            topics: some of them, or none for all.

        Raises:
            RequestRefused: it refuses.
            NoAnswer: no broker answers.
        """
        found: list[questions.PromotedEntry] = []
        for some in _parts(topics) or [[]]:
            answer = self._of_broker(questions.PROMOTED, "", questions.AskPromoted(tuple(some)))
            if answer is None:
                return None
            found += answer.entries
        return found

    def promote(self, topics: Sequence[str] | None) -> None:
        """Have a broker lead topics that it follows, or (None) all, and follow nothing any more.

        It may be called again: topics that are led stay so.

        Raises:
            RequestRefused: the broker cannot (Apache Kafka), or some are not led.
            NoAnswer: no broker answers.
        """
        if topics is None:
            self._follow(questions.PROMOTE, questions.ALL_TOPICS)
        for some in _parts(topics or ()):
            self._follow(questions.PROMOTE, json.dumps(some))

    def demote(self, servers: str, topics_pattern: str = ".*") -> None:
        """Have a broker follow a cluster, also in topics that it leads.

        Args:
            servers: the bootstrap servers of the cluster, as the broker reaches it.
            topics_pattern: a regular expression, in RE2's syntax, that whole names match.

        Raises:
            RequestRefused: the broker cannot (Apache Kafka), or refuses.
            NoAnswer: no broker answers.
        """
        self._follow(
            questions.DEMOTE, json.dumps(questions.Demotion(servers, topics_pattern)._asdict())
        )

    def _follow(self, action: Action, value: str) -> None:
        lacking = (
            f"the broker at {self.config.bootstrap_servers} follows no other, as only horolog does"
        )
        self._act(action, "", value, RequestRefused(ErrorCode.unsupported_version, lacking))

    def append_times_ahead(self, topic: str) -> questions.AppendTimesAhead:
        """How far a topic's append times are ahead of the broker's clock.

        Raises:
            RequestRefused: the broker has no such request (Apache Kafka), or no such topic.
            NoAnswer: no broker answers.
        """
        found = self._of_broker(questions.APPEND_TIMES_AHEAD, topic, questions.AskNothing())
        if found is None:
            raise self._no_append_times(topic)
        return found

    def reset_append_times(self, topic: str, partitions: Sequence[int] | None = None) -> None:
        """Lower the append times of a topic, or some of its partitions, to the broker's clock.

        Raises:
            RequestRefused: the broker cannot (Apache Kafka), or some were not reset.
            NoAnswer: no broker answers.
        """
        value = questions.ALL_PARTITIONS if partitions is None else ",".join(map(str, partitions))
        self._act(questions.APPEND_TIME_RESET, topic, value, self._no_append_times(topic))

    def _no_append_times(self, topic: str) -> RequestRefused:
        return RequestRefused(
            ErrorCode.unsupported_version,
            f"the broker at {self.config.bootstrap_servers} has no append times of {topic} to "
            "reset: Apache Kafka's go back with its clock, and only horolog's never do",
        )

    # --- how a row is asked -----------------------------------------------------------

    def _act(self, action: Action, name: str, value: str, lacking: RequestRefused) -> None:
        """Have a broker do something to a resource; `lacking` where it does not announce it."""

        def attempt(deadline: Deadline) -> None:
            link = self.brokers.any(deadline)
            if action.name not in link.features:
                raise lacking
            alter(link, (action.about, name), {action.name: value}, deadline)

        self._persist(attempt)

    def _of_leader(
        self, question: Question[TakesT, GivesT], topic: str, partition: int, ask: TakesT
    ) -> GivesT | None:
        """What the leader of a partition answers; None where it does not announce the question."""
        return self._of_leaders(question, {(topic, partition): ask})[topic, partition]

    def _of_leaders(
        self, question: Question[TakesT, GivesT], asks: Mapping[TopicPartition, TakesT]
    ) -> dict[TopicPartition, GivesT | None]:
        """The same for many partitions, in one request to each leader, and to all at a time."""
        return self._answers(
            question, asks, lambda each, deadline: self.brokers.leader(*each, deadline)
        )

    def _of_broker(
        self, question: Question[TakesT, GivesT], name: str, ask: TakesT
    ) -> GivesT | None:
        """What a broker answers about a resource; None where it does not announce the question."""
        each = (name, -1)
        return self._answers(question, {each: ask}, lambda _, deadline: self.brokers.any(deadline))[
            each
        ]

    def _answers(
        self,
        question: Question[TakesT, GivesT],
        asks: Mapping[TopicPartition, TakesT],
        link_of: _LinkOf,
    ) -> dict[TopicPartition, GivesT | None]:
        """Whole answers, in as many pages as they have."""
        pages: dict[TopicPartition, list[GivesT] | None] = {each: [] for each in asks}
        left = dict(asks)
        while left:
            found = self._persist(partial(self._ask_all, question, left, link_of))
            for each, page in found.items():
                ask, its = left.pop(each), pages[each]
                if page is None or its is None:
                    pages[each] = None
                    continue
                its.append(page)
                try:
                    following = question.following(ask, page)
                except ValueError as error:
                    raise _malformed(question, error) from None
                if following is not None:
                    left[each] = following
        return {each: None if its is None else question.joined(its) for each, its in pages.items()}

    def _ask_all(
        self,
        question: Question[TakesT, GivesT],
        asks: Mapping[TopicPartition, TakesT],
        link_of: _LinkOf,
        deadline: Deadline,
    ) -> dict[TopicPartition, GivesT | None]:
        """One page of each answer. Each broker has one request in flight, of `MOST_QUESTIONS`."""
        by_link: dict[Link, list[TopicPartition]] = defaultdict(list)
        answers: dict[TopicPartition, GivesT | None] = {}
        for each in asks:
            link = link_of(each, deadline)
            if question.name in link.features:
                by_link[link].append(each)
            else:
                answers[each] = None
        for first in range(0, max(map(len, by_link.values()), default=0), MOST_QUESTIONS):
            now = {
                link: {each: asks[each] for each in its[first : first + MOST_QUESTIONS]}
                for link, its in by_link.items()
                if len(its) > first
            }
            answers |= _asked_together(question, now, deadline)
        return answers


def _parts(topics: Sequence[str]) -> list[list[str]]:
    """Topics, as many at a time as one request has."""
    return [
        list(topics[first : first + _MOST_TOPICS]) for first in range(0, len(topics), _MOST_TOPICS)
    ]


def _asked_together(
    question: Question[TakesT, GivesT],
    asks: Mapping[Link, Mapping[TopicPartition, TakesT]],
    deadline: Deadline,
) -> dict[TopicPartition, GivesT]:
    answers: dict[TopicPartition, GivesT] = {}
    unanswered = []
    try:
        for link, its in asks.items():
            keys: dict[str, list[str]] = defaultdict(list)
            for (name, _), ask in its.items():
                keys[name].append(question.key(ask))
            request = describe_request({(question.about, name): keys[name] for name in keys})
            unanswered.append(link)
            version = link.version(ApiKey.DESCRIBE_CONFIGS)
            link.send(ApiKey.DESCRIBE_CONFIGS, version, request, deadline)
        for link, its in asks.items():
            version = link.version(ApiKey.DESCRIBE_CONFIGS)
            body = link.receive(ApiKey.DESCRIBE_CONFIGS, version, deadline)
            unanswered.remove(link)
            answers |= _read(question, its, body)
    finally:
        for link in unanswered:  # what is under way there is no answer to a later request
            link.connection.close()
    return answers


def _read(
    question: Question[TakesT, GivesT], asks: Mapping[TopicPartition, TakesT], body: Any
) -> dict[TopicPartition, GivesT]:
    """The answer to each question.

    Raises:
        RequestRefused: of a resource.
        MalformedResponse: one is missing or of another form.
    """
    whose: dict[str, list[str]] = defaultdict(list)
    for name, partition in asks:
        whose[name].append(name if partition < 0 else f"{name}-{partition}")
    refuse_any(
        (f"{question.name} of {', '.join(whose[each.resource_name]):.200}", each)
        for each in body.results
    )
    values = {
        (result.resource_name, entry.name): entry.value
        for result in body.results
        for entry in result.configs
    }
    try:
        return {
            each: question.read_value(values[each[0], question.key(ask)])
            for each, ask in asks.items()
        }
    except (ValueError, TypeError, KeyError) as error:
        raise _malformed(question, error) from None


def _malformed(question: Question[Any, Any], error: Exception) -> MalformedResponse:
    return MalformedResponse(f"{question.name} was answered in another way: {error}")
