"""Table of questions and actions, for the handlers of settings."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from horolog.broker.authorisation import authorise_operation
from horolog.broker.broker import BrokerParts
from horolog.broker.control import brokers, cuts, faults, groups, history, partitions, topics
from horolog.broker.control.clock import show_clock
from horolog.broker.control.rows import (
    ACTION_ROWS,
    QUESTION_ROWS,
    ActionRow,
    Perform,
    QuestionRow,
    Show,
    documentation_of,
    read_only,
)
from horolog.broker.dispatch import Request
from horolog.config import DescribedSetting, Operation, SettingChange
from horolog.errors import ErrorCode, RequestRefused
from horolog.network.peer import Peer
from horolog.wire.config_resources import ResourceType
from horolog.wire.packing import MAX_STRING_BYTES

ROWS_OF: Final = (brokers, cuts, faults, groups, history, partitions, topics)
"""The modules whose functions answer questions or perform actions."""
SHOWN: Final[Sequence[tuple[ResourceType, Show]]] = ((ResourceType.BROKER, show_clock),)

_LEAST_OF_TOO_LONG: Final = MAX_STRING_BYTES // 4
"""Length in characters of a text that may be too long. A character has up to four bytes."""
_QUESTIONS: Final[Mapping[tuple[int, str], QuestionRow[Any, Any]]] = {
    (row.question.about, row.question.name): row for row in QUESTION_ROWS
}
_NAMES: Final = frozenset(row.question.name for row in QUESTION_ROWS)
_ACTIONS: Final = {
    (action.about, action.name): (action, row) for row in ACTION_ROWS for action in row.actions
}


def questions_in(keys: Collection[str] | None) -> list[str]:
    """Return the keys that may be questions, in order."""
    return sorted(key for key in keys or () if "/" in key or key in _NAMES)


async def describe(
    broker: BrokerParts,
    request: Request[Any],
    about: ResourceType,
    name: str,
    keys: Collection[str] | None,
) -> list[DescribedSetting]:
    """Return the answers to questions about a resource, and its other entries beside settings.

    Raises:
        RequestRefused: a question is not of its form, or is refused.
        HorologError: as what answers a question says.
    """
    found: list[DescribedSetting] = []
    for resource_type, show in SHOWN:
        for entry in show(broker, name, keys) if resource_type is about else ():
            found.append(entry)
            await request.checkpoint()
    for key in questions_in(keys):
        row = _QUESTIONS.get((about, key.partition("/")[0]))
        if row is not None:
            answer = await _answer(broker, request.peer, name, row, key)
            found.append(read_only(key, answer, documentation_of(row.question)))
            await request.checkpoint()
    return found


async def _answer(
    broker: BrokerParts, peer: Peer, name: str, row: QuestionRow[Any, Any], key: str
) -> str:
    question = row.question
    authorise_operation(peer, question.needs, question.about, name)
    try:
        takes = question.read_key(key)
    except ValueError as error:
        raise RequestRefused(
            ErrorCode.invalid_request, f"{key:.200} is not {question.form}: {error}"
        ) from None
    value = question.value(await row.answer(broker, peer, name, takes))
    if len(value) > _LEAST_OF_TOO_LONG and len(value.encode()) > MAX_STRING_BYTES:
        # Names that a source or a client has chosen, beside a page of entries.
        raise RequestRefused(
            ErrorCode.message_too_large,
            f"the answer has more than {MAX_STRING_BYTES} bytes, which no string of Kafka's has",
        )
    return value


def split_actions(
    broker: BrokerParts,
    peer: Peer,
    about: ResourceType,
    name: str,
    changes: Iterable[SettingChange],
) -> tuple[Perform | None, list[SettingChange]]:
    """Split the changes of a resource into actions and changes of settings.

    Returns:
        The function that performs the actions, None without any, and the changes of settings.

    Raises:
        RequestRefused: an action is set in another way than it can be, or is refused.
    """
    others: list[SettingChange] = []
    values: dict[str, str] = {}
    row: ActionRow | None = None
    for change in changes:
        if (about, change.name) in _QUESTIONS:
            raise RequestRefused(
                ErrorCode.invalid_config, f"{change.name} can be described, not set"
            )
        known = _ACTIONS.get((about, change.name))
        if known is None:
            others.append(change)
            continue
        action, its_row = known
        authorise_operation(peer, action.needs, about, name)
        is_other = row not in (None, its_row) or change.name in values
        if is_other or change.operation is not Operation.SET or change.value is None:
            raise _refusal(change.name, its_row)
        row, values[change.name] = its_row, change.value
    if row is None:
        return None, others
    if row.is_alone and others:
        raise _refusal(next(iter(values)), row)
    return row.prepare(broker, name, values), others


def _refusal(name: str, row: ActionRow) -> RequestRefused:
    alone = ", and with nothing else" if row.is_alone else ""
    return RequestRefused(ErrorCode.invalid_config, f"{name} can be set, once in a request{alone}")
