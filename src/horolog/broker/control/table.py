"""Table of questions and actions, for the handlers of settings."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from horolog.broker.authorisation import CLUSTER, GROUP, TOPIC, refusal
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
from horolog.rights.entries import CLUSTER_NAME
from horolog.wire.acl import AclOperation, AclResource
from horolog.wire.api import ApiKey
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
_KINDS: Final[Mapping[int, AclResource]] = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
}
_NAMES: Final = frozenset(row.question.name for row in QUESTION_ROWS)
_ACTIONS: Final = {
    (action.about, action.name): (action, row) for row in ACTION_ROWS for action in row.actions
}


def questions_in(keys: Collection[str] | None) -> list[str]:
    """Return the keys that may be questions, in order."""
    return sorted(key for key in keys or () if "/" in key or key in _NAMES)


def check_rights(
    broker: BrokerParts,
    peer: Peer,
    api_key: ApiKey,
    about: int,
    name: str,
    needs: Collection[AclOperation],
) -> None:
    """Check that a client may do operations on what has settings.

    A broker, its loggers and client metrics are the cluster's.

    Raises:
        RequestRefused: it may not (29, 30 or 31).
    """
    kind = _KINDS.get(about, CLUSTER)
    resource = CLUSTER_NAME if kind is CLUSTER else name
    for operation in dict.fromkeys(needs):
        if not broker.access.allows_operation(peer, api_key, operation, kind, resource):
            raise refusal(kind)


def needs_of_questions(about: int, keys: Collection[str] | None) -> list[AclOperation]:
    """Return what a client needs to describe a resource.

    Questions have rights of their own, and that of settings is needed if there is another key.
    """
    questions = [_QUESTIONS.get((about, key.partition("/")[0])) for key in questions_in(keys)]
    needs = [row.question.needs for row in questions if row is not None]
    if not keys or len(needs) < len(keys):
        needs.append(AclOperation.DESCRIBE_CONFIGS)
    return needs


def needs_of_changes(about: int, names: Collection[str]) -> list[AclOperation]:
    """Return what a client needs to change a resource, likewise."""
    actions = [_ACTIONS.get((ResourceType(about), name)) for name in names]
    needs = [known[0].needs for known in actions if known is not None]
    if not names or len(needs) < len(names):
        needs.append(AclOperation.ALTER_CONFIGS)
    return needs


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
        _, its_row = known
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
