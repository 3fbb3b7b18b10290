"""Rows of the table of questions and actions, and the size of pages."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from horolog.broker.broker import BrokerParts
from horolog.config import DescribedSetting, SettingKind, SettingSource
from horolog.network.peer import Peer
from horolog.wire.packing import MAX_STRING_BYTES
from horolog.wire.questions import Action, GivesT, Question, TakesT, json_bytes

MOST_LIST_BYTES: Final = MAX_STRING_BYTES - 1024
"""Size of the list in an answer, one string of the protocol; the rest is for other members."""

T = TypeVar("T")

Perform: TypeAlias = Callable[[], Awaitable[None]]


Answer: TypeAlias = Callable[[BrokerParts, Peer, str, TakesT], Awaitable[GivesT]]
"""Answers a question for a client, about the resource of a name."""
Prepare: TypeAlias = Callable[[BrokerParts, str, Mapping[str, str]], Perform]
"""Checks the values by name for a resource; returns the function that performs the actions."""


@dataclass(frozen=True, slots=True)
class QuestionRow(Generic[TakesT, GivesT]):
    """A question and the function that answers it."""

    question: Question[TakesT, GivesT]
    answer: Answer[TakesT, GivesT]


@dataclass(frozen=True, slots=True)
class ActionRow:
    """Actions that are performed together, and the function that prepares them."""

    actions: tuple[Action, ...]
    prepare: Prepare
    is_alone: bool
    """Whether a request may contain nothing else."""


QUESTION_ROWS: Final[list[QuestionRow[Any, Any]]] = []
ACTION_ROWS: Final[list[ActionRow]] = []


def answers(
    question: Question[TakesT, GivesT],
) -> Callable[[Answer[TakesT, GivesT]], Answer[TakesT, GivesT]]:
    """Decorate a function that answers the question."""

    def added(answer: Answer[TakesT, GivesT]) -> Answer[TakesT, GivesT]:
        QUESTION_ROWS.append(QuestionRow(question, answer))
        return answer

    return added


def performs(*actions: Action, is_alone: bool = True) -> Callable[[Prepare], Prepare]:
    """Decorate a function that prepares the actions."""

    def added(prepare: Prepare) -> Prepare:
        ACTION_ROWS.append(ActionRow(actions, prepare, is_alone))
        return prepare

    return added


Show: TypeAlias = Callable[[BrokerParts, str, Collection[str] | None], Iterable[DescribedSetting]]
"""Returns entries of a resource that are described like settings, by name or all (None)."""


def as_many_as_fit(
    items: Iterator[tuple[int, T]], beside: object = ()
) -> tuple[tuple[T, ...], int | None]:
    """Return the first items that fit one answer, and the start of the next item.

    Args:
        items: start and content of each item; the first that does not fit is the last one taken.
        beside: other members of the answer, if they may be long.
    """
    taken: list[T] = []
    left = MOST_LIST_BYTES - json_bytes(beside)
    for begin, item in items:
        left -= json_bytes(item) + 1
        if left < 0:
            return tuple(taken), begin
        taken.append(item)
    return tuple(taken), None


def read_only(name: str, value: str, documentation: str) -> DescribedSetting:
    """Return a setting that shows a JSON object."""
    return DescribedSetting(
        name,
        value,
        SettingSource.DEFAULT,
        read_only=True,
        sensitive=False,
        synonyms=(),
        kind=SettingKind.STRING,
        documentation=documentation,
    )


def documentation_of(question: Question[Any, Any]) -> str:
    """Return the first sentence about the answer of a question."""
    return (question.gives.__doc__ or "").partition("\n")[0]
