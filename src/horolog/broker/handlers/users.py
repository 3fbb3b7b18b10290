"""Requests about users that log in by SCRAM (KIP-554)."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from horolog.broker.authorisation import CLUSTER, refusal
from horolog.broker.broker import BrokerParts
from horolog.broker.dispatch import Request, api
from horolog.broker.handlers.changes import check_number, note_changes
from horolog.broker.handlers.results import PartOutcome, each
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for, printable
from horolog.rights.entries import CLUSTER_NAME
from horolog.security.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    Credential,
    ScramMechanism,
    credential_of,
)
from horolog.wire.api import ApiKey
from horolog.wire.requests import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from horolog.wire.responses import (
        AlterUserScramCredentialsResponse,
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )

_ABSENT: Final = PartOutcome(
    ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
)
_TWICE: Final = PartOutcome(
    ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
)
_Change: TypeAlias = tuple[ScramMechanism, Credential | None]
"""Change of a user: its credential, or None to remove it."""

# --- DescribeUserScramCredentials: mechanisms and iterations of users -------------------
#
# v0  flexible from the start


@api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
async def describe_user_scram_credentials(
    request: Request[DescribeUserScramCredentialsRequest], broker: BrokerParts
) -> "DescribeUserScramCredentialsResponse":
    """Describe the users of the request; all of them without any."""
    api_key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    if not broker.access.allows(request.peer, api_key, CLUSTER, CLUSTER_NAME):
        code, message = ErrorCode.cluster_authorization_failed, str(refusal(CLUSTER))
        return {
            "error_code": code,
            "error_message": message,
            "results": [
                {"user": "", "error_code": code, "error_message": message, "credential_infos": []}
            ],
        }
    by_user: dict[str, dict[int, Credential]] = {}
    async for (user, number), credential in each(request, list(broker.credentials.items())):
        by_user.setdefault(user, {})[number] = credential
    asked = request.body.users
    names = [user.name async for user in each(request, asked)] if asked else list(by_user)
    times = Counter(names)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "results": [
            _described(user, count, by_user.get(user, {}))
            async for user, count in each(request, times.items())
        ],
    }


def _described(
    user: str, times: int, credentials: dict[int, Credential]
) -> "DescribeUserScramCredentialsResult":
    outcome = PartOutcome()
    if times > 1:
        outcome = PartOutcome(
            ErrorCode.duplicate_resource, f"Cannot describe a user twice in one request: {user}"
        )
    elif not credentials:
        outcome = PartOutcome(
            ErrorCode.resource_not_found, f"There are no SCRAM credentials of the user: {user}"
        )
    code, message = outcome
    return {
        "user": user,
        "error_code": code,
        "error_message": None if message is None else printable(message),
        "credential_infos": [
            {"mechanism": number, "iterations": credentials[number].iterations}
            for number in ([] if code else sorted(credentials))
        ],
    }


# --- AlterUserScramCredentials: sets and removes them -----------------------------------
#
# v0  flexible from the start
#
# A client sends the salted password, never the password. Each user has its own error.


@api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
async def alter_user_scram_credentials(
    request: Request[AlterUserScramCredentialsRequest], broker: BrokerParts
) -> "AlterUserScramCredentialsResponse":
    """Set and remove passwords of users."""
    body = request.body
    named = [it.name async for it in each(request, body.deletions)]
    named += [it.name async for it in each(request, body.upsertions)]
    outcomes = dict.fromkeys(named, PartOutcome())
    try:
        broker.access.check(request.peer, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, CLUSTER)
        check_number(len(named), "passwords")
        changes = _Changes(broker.credentials)
        async for deletion in each(request, body.deletions):
            changes.add(deletion.name, partial(changes.deleted, deletion))
        async for upsertion in each(request, body.upsertions):
            changes.add(upsertion.name, partial(_credential, upsertion))
        outcomes |= changes.errors
        changed, removed = changes.split()
        present = await broker.controller.change_credentials(changed, removed)
        lines = [f"set the password of {name} for {_title(it)}" for name, it in changed]
        lines += [f"removed the password of {name} for {_title(it)}" for name, it in present]
        await note_changes(request, lines)
        for name, number in removed:
            if (name, number) not in present:  # another request has removed it meanwhile
                outcomes[name] = _ABSENT
    except HorologError as error:
        outcomes = dict.fromkeys(named, PartOutcome(code_for(error), str(error)))
    return {
        "results": [
            {"user": user, "error_code": code, "error_message": message}
            for user, (code, message) in outcomes.items()
        ]
    }


class _Changes:
    """Changes of a request, at most one for each user. The first error of a user stays."""

    def __init__(self, present: Mapping[tuple[str, int], Credential]) -> None:
        self.errors: dict[str, PartOutcome] = {}
        self._present = present
        self._made: dict[str, _Change] = {}

    def add(self, name: str, check: Callable[[], _Change]) -> None:
        """Add a change, or note why it cannot be made."""
        if name in self.errors:
            return
        if self._made.pop(name, None) is not None:
            self.errors[name] = _TWICE
            return
        try:
            self._made[name] = check()
        except RequestRefused as error:
            self.errors[name] = PartOutcome(error.code, str(error))

    def deleted(self, asked: ScramCredentialDeletion) -> _Change:
        """Check that a credential can be removed."""
        mechanism = _mechanism(asked.name, asked.mechanism)
        if (asked.name, mechanism) not in self._present:
            raise RequestRefused(_ABSENT.error_code, str(_ABSENT.message))
        return mechanism, None

    def split(self) -> tuple[dict[tuple[str, int], Credential], list[tuple[str, int]]]:
        """Return what is set, and what is removed."""
        changed, removed = dict[tuple[str, int], Credential](), []
        for name, (mechanism, credential) in self._made.items():
            if credential is None:
                removed.append((name, int(mechanism)))
            else:
                changed[name, mechanism] = credential
        return changed, removed


def _title(number: int) -> str:
    return ScramMechanism(number).title


def _mechanism(name: str, number: int) -> ScramMechanism:
    """Return the mechanism of a change, if there may be such a user."""
    if not name:
        raise RequestRefused(ErrorCode.unacceptable_credential, "Username must not be empty")
    try:
        return ScramMechanism(number)
    except ValueError:
        raise RequestRefused(
            ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"
        ) from None


def _credential(change: ScramCredentialUpsertion) -> _Change:
    mechanism, iterations = _mechanism(change.name, change.mechanism), change.iterations
    if iterations < LEAST_ITERATIONS:
        raise RequestRefused(ErrorCode.unacceptable_credential, "Too few iterations")
    if iterations > MOST_ITERATIONS:
        raise RequestRefused(ErrorCode.unacceptable_credential, "Too many iterations")
    salted, salt = bytes(change.salted_password), bytes(change.salt)
    if not salted:
        raise RequestRefused(ErrorCode.unacceptable_credential, "The salted password is empty")
    return mechanism, credential_of(mechanism, salted, salt, iterations)
