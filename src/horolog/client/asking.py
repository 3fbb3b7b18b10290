"""Horolog's own questions and actions, from the table in `wire/questions.py`."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from horolog.client.configs import alter, describe_request, refuse_any
from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.retrying import RetriedCalls
from horolog.errors import ErrorCode, RequestRefused
from horolog.offsets import TopicPartition
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType
from horolog.wire.malformed import MalformedResponse
from horolog.wire.questions import Action, GivesT, Question, TakesT

ANY_BROKER: Final = -1
"""Stands for a partition where none is asked about: the coordinator of a group, or any broker."""
MOST_QUESTIONS: Final = 500  # in one request

_LinkOf: TypeAlias = Callable[[TopicPartition, Deadline], Link]


class Ask(RetriedCalls):
    """Asks brokers horolog's own questions: `client.ask(TIMES, "clicks", AskTimes(0))`.

    All pages of an answer are joined. The answer is None if the broker does not announce the
    question, as Apache Kafka's.
    """

    def __call__(
        self, question: Question[TakesT, GivesT], about: str = "", takes: TakesT | None = None
    ) -> GivesT | None:
        """Ask the leader of the partition in `takes`, the coordinator of a group, or any broker.

        Args:
            about: name of the topic or group; empty for the broker itself.
            takes: arguments of the question, if it has no defaults.
        """
        given: Any = _default(question) if takes is None else takes
        resource = about, getattr(given, "partition", ANY_BROKER)
        return self.many(question, {resource: given})[resource]

    def needed(
        self, question: Question[TakesT, GivesT], about: str = "", takes: TakesT | None = None
    ) -> GivesT:
        """Ask, and raise an error if the broker does not announce the question.

        Raises:
            RequestRefused: a broker refuses, or does not announce the question.
        """
        answer = self(question, about, takes)
        if answer is None:
            raise self.lacking(question, about)
        return answer

    def lacking(self, question: Question[TakesT, GivesT], about: str) -> RequestRefused:
        """Return the error about brokers that do not announce a question."""
        return self._lacking(question.lacking or f"does not answer {question.name}", about)

    def many(
        self, question: Question[TakesT, GivesT], asks: Mapping[TopicPartition, TakesT]
    ) -> dict[TopicPartition, GivesT | None]:
        """Ask about many resources: one request to each leader, sent to all leaders at a time.

        Args:
            asks: arguments by topic or group and partition; `ANY_BROKER` for no partition.

        Raises:
            RequestRefused: of one resource, which is named.
        """

        def link_of(resource: TopicPartition, deadline: Deadline) -> Link:
            about, partition = resource
            if partition != ANY_BROKER:
                return self.brokers.leader(about, partition, deadline)
            if question.about is ResourceType.GROUP and about:
                return self.brokers.coordinator(about, deadline)
            return self.brokers.any(deadline)

        return self._pages(question, asks, link_of)

    def each_broker(
        self, question: Question[TakesT, GivesT], takes: TakesT | None = None
    ) -> dict[int, GivesT | None]:
        """Ask every broker of the cluster about itself; return the answers by broker id."""
        given: Any = _default(question) if takes is None else takes
        nodes = self._persist(lambda deadline: self.brokers.metadata([], deadline)).brokers
        found = self._pages(
            question,
            {(str(node), ANY_BROKER): given for node in nodes},
            lambda resource, deadline: self.brokers.node(int(resource[0]), deadline),
        )
        return {int(node): answer for (node, _), answer in found.items()}

    def act(self, action: Action, about: str, value: str) -> None:
        """Perform an action on a resource of a broker.

        Raises:
            RequestRefused: a broker refuses, or does not announce the action.
        """

        def attempt(deadline: Deadline) -> None:
            link = self.brokers.any(deadline)
            if action.name not in link.features:
                raise self._lacking(action.lacking, about)
            alter(link, (action.about, about), {action.name: value}, deadline)

        self._persist(attempt)

    def _lacking(self, what: str, about: str) -> RequestRefused:
        servers = self.config.bootstrap_servers
        return RequestRefused(
            ErrorCode.unsupported_version, f"the broker at {servers} {what.format(about)}"
        )

    def _pages(
        self,
        question: Question[TakesT, GivesT],
        asks: Mapping[TopicPartition, TakesT],
        link_of: _LinkOf,
    ) -> dict[TopicPartition, GivesT | None]:
        """Ask for further pages until every answer is complete, and join the pages."""
        pages: dict[TopicPartition, list[GivesT] | None] = {resource: [] for resource in asks}
        left = dict(asks)
        while left:
            answers = self._persist(partial(self._ask_page, question, left, link_of))
            for resource, page in answers.items():
                ask, its = left.pop(resource), pages[resource]
                if page is None or its is None:
                    pages[resource] = None
                    continue
                its.append(page)
                try:
                    following = question.following(ask, page)
                except ValueError as error:
                    raise _malformed(question, error) from None
                if following is not None:
                    left[resource] = following
        return {
            resource: None if its is None else question.joined(its)
            for resource, its in pages.items()
        }

    def _ask_page(
        self,
        question: Question[TakesT, GivesT],
        asks: Mapping[TopicPartition, TakesT],
        link_of: _LinkOf,
        deadline: Deadline,
    ) -> dict[TopicPartition, GivesT | None]:
        """Return one page of each answer.

        Each broker has one request in flight, of `MOST_QUESTIONS`.
        """
        by_link: dict[Link, list[TopicPartition]] = defaultdict(list)
        answers: dict[TopicPartition, GivesT | None] = {}
        for ask in asks:
            link = link_of(ask, deadline)
            if question.name in link.features:
                by_link[link].append(ask)
            else:
                answers[ask] = None
        for first in range(0, max(map(len, by_link.values()), default=0), MOST_QUESTIONS):
            now = {
                link: {resource: asks[resource] for resource in its[first : first + MOST_QUESTIONS]}
                for link, its in by_link.items()
                if len(its) > first
            }
            answers |= _asked_together(question, now, deadline)
        return answers


def _default(question: Question[Any, Any]) -> Any:
    return question.takes()


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
    """Return the answer to each question.

    Raises:
        RequestRefused: of a resource.
        MalformedResponse: one is missing or of another form.
    """
    whose: dict[str, list[str]] = defaultdict(list)
    for name, partition in asks:
        whose[name].append(name if partition == ANY_BROKER else f"{name}-{partition}")
    refuse_any(
        (f"{question.name} of {', '.join(whose[resource.resource_name]):.200}", resource)
        for resource in body.results
    )
    values = {
        (result.resource_name, entry.name): entry.value
        for result in body.results
        for entry in result.configs
    }
    try:
        return {
            resource: question.read_value(values[resource[0], question.key(ask)])
            for resource, ask in asks.items()
        }
    except (ValueError, TypeError, KeyError) as error:
        raise _malformed(question, error) from None


def _malformed(question: Question[Any, Any], error: Exception) -> MalformedResponse:
    return MalformedResponse(f"{question.name} was answered in another way: {error}")
