"""Copies access control entries and quotas of the source, where it describes them to this broker.

What was copied is known after a restart, too: the id of an entry follows from the source and the
entry, and the store keeps which quotas were copied. What the source has lost is removed. What only
this broker has stays. Passwords cannot be copied: no request asks for them.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar
from uuid import UUID, uuid5

from horolog.broker.controller import Controller
from horolog.broker.scheduling.uncancelled import uncancelled
from horolog.client.client import Client
from horolog.errors import ErrorCode, HorologError, RequestRefused, listed, printable
from horolog.quotas.entities import Entity, check_entity, check_quota
from horolog.quotas.model import Quotas
from horolog.rights.entries import AclEntry
from horolog.rights.model import Rights
from horolog.security.scram import ScramMechanism
from horolog.wire.acl import AclPermission

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_NAMESPACE: Final = UUID("5f8ac57f-9c15-4f0b-8a8e-6d1f3b0c7a52")
MOST_COPIED: Final = 100_000
"""Limit of entries, and of quotas, that are copied."""
_AT_ONCE: Final = 10_000
"""Entries that change together, as in one request."""
_MOST_NAMED: Final = 10

ENTRIES: Final = "access control entries"
QUOTAS: Final = "quotas"
USERS: Final = "users"
_NEEDS: Final = {ENTRIES: "DESCRIBE", QUOTAS: "DESCRIBE_CONFIGS", USERS: "DESCRIBE"}
"""Operations on the cluster that a principal must be allowed, to be given a description."""

_NOT_ASKED: Final = (
    "rights, quotas and passwords of the source: it has not described them since this start"
)
FOLLOWS_US: Final = "rights and quotas of the source: it follows this broker itself"


class AccessAtSource(NamedTuple):
    """Rights, quotas and users of the source; None stands for what it does not describe."""

    cluster_id: str
    entries: Mapping[UUID, AclEntry] | None
    """Entries by the ids that they get here."""
    quotas: Mapping[tuple[Entity, str], float] | None
    copied_quotas: frozenset[str]
    """Digests of these quotas' keys."""
    users: Collection[tuple[str, int]] | None
    """Users with the numbers of their mechanisms."""
    why: Mapping[str, str]
    """Reasons why something is not described, or not copied."""


def entry_id(cluster_id: str, entry: AclEntry) -> UUID:
    """Return the id that an entry of a source gets here."""
    return uuid5(uuid5(_NAMESPACE, cluster_id), json.dumps(entry))


def quota_digest(entity: Entity, key: str) -> str:
    """Return a short text for a quota's entity and key."""
    parts = sorted(entity, key=lambda part: part[0])
    return hashlib.sha256(json.dumps([*parts, key]).encode()).hexdigest()[:16]


def access_at(client: Client, cluster_id: str) -> AccessAtSource:
    """Ask a source for its rights, quotas and users.

    Raises:
        RequestRefused: it is another cluster now.
        NoAnswer: no broker answers.
    """
    found = client.metadata([]).cluster_id
    if found != cluster_id:
        raise RequestRefused(
            ErrorCode.inconsistent_cluster_id, f"it is cluster {found} now, and not {cluster_id}"
        )
    why: dict[str, str] = {}

    def asked(what: str, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except RequestRefused as error:
            if error.code is ErrorCode.cluster_authorization_failed:
                why[what] = _denied(what)
            elif error.code is not ErrorCode.security_disabled:  # else it obeys no entries
                why[what] = str(error)
            return None

    entries = asked(ENTRIES, lambda: _entries(client, cluster_id))
    quotas = asked(QUOTAS, lambda: _quotas(client, why))
    users = asked(USERS, client.users.list)
    numbers = {mechanism.title: mechanism.value for mechanism in ScramMechanism}
    return AccessAtSource(
        cluster_id,
        entries,
        quotas,
        frozenset(quota_digest(*key) for key in quotas or ()),
        None if users is None else [(user.user, numbers.get(user.mechanism, 0)) for user in users],
        why,
    )


def _denied(what: str) -> str:
    return f"this broker's principal there needs {_NEEDS[what]} on the cluster"


def _entries(client: Client, cluster_id: str) -> dict[UUID, AclEntry]:
    entries = client.acls.list()
    _check_number(len(entries))
    return {entry_id(cluster_id, entry): entry for entry in entries}


def _quotas(client: Client, why: dict[str, str]) -> dict[tuple[Entity, str], float]:
    quotas = client.quotas.list()
    _check_number(len(quotas))
    good = {}
    for quota in quotas:
        try:
            check_quota(check_entity(list(quota.entity)), quota.key, quota.value)
            good[quota.entity, quota.key] = quota.value
        except RequestRefused as error:
            why[QUOTAS] = f"one of them, {quota.key:.60}, is invalid: {error}"
    return good


def _check_number(count: int) -> None:
    if count > MOST_COPIED:
        raise RequestRefused(
            ErrorCode.policy_violation, f"it has {count}; at most {MOST_COPIED} are"
        )


class FollowedAccess:
    """Rights and quotas of the source. For the event loop's thread only."""

    def __init__(
        self,
        controller: Controller,
        rights: Rights | None,
        credentials: Mapping[tuple[str, int], object],
        quotas: Quotas,
        copied_quotas: frozenset[str],
    ) -> None:
        """Copy nothing yet.

        Args:
            rights: the entries here; None if this broker does not obey any.
            credentials: users here, with the numbers of their mechanisms.
            copied_quotas: digests of the quotas that are copies.
        """
        self.notes: tuple[str, ...] = (_NOT_ASKED,)
        """Sentences about what is not copied."""
        self._controller = controller
        self._rights = rights
        self._credentials = credentials
        self._quotas = quotas
        self._copied_quotas = copied_quotas
        self._done: tuple[Mapping[UUID, AclEntry], int] | None = None

    async def apply(self, seen: AccessAtSource) -> None:
        """Make rights and quotas what they are at the source; name what cannot be."""
        why = dict(seen.why)
        for what, copy in ((ENTRIES, self._copy_entries), (QUOTAS, self._copy_quotas)):
            try:
                await copy(seen)
            except HorologError as error:
                why[what] = str(error)
        notes = [f"{' and '.join(what)} of the source: {text}" for text, what in _grouped(why)]
        self.note(*notes, *self._missing_users(seen.users))

    def note(self, *notes: str) -> None:
        """Replace the sentences about what is not copied; new ones are logged."""
        for note in notes:
            if note not in self.notes:
                _LOG.warning("not copied: %s", note)
        self.notes = notes

    @uncancelled
    async def _copy_entries(self, seen: AccessAtSource) -> None:
        """Add and remove entries: first what takes rights, then what gives them."""
        rights, entries = self._rights, seen.entries
        if entries is None or (rights is None and not entries):
            return
        if rights is None:
            raise RequestRefused(
                ErrorCode.security_disabled,
                f"this broker has no authorizer (authorizer.class.name), and does not copy "
                f"{len(entries)} without",
            )
        if self._done == (entries, rights.generation):
            return
        here = dict(rights.items())
        added = {its_id: entry for its_id, entry in entries.items() if its_id not in here}
        new = set(added.values())
        removed = [
            its_id
            for its_id, entry in here.items()
            if its_id not in entries
            and (entry in new or entry_id(seen.cluster_id, entry) == its_id)
        ]
        changes: list[tuple[bool, UUID, AclEntry | None]] = [
            (entry.permission != AclPermission.DENY, its_id, entry)
            for its_id, entry in added.items()
        ]
        changes += [(here[its_id].is_denial, its_id, None) for its_id in removed]
        changes.sort(key=lambda change: change[0])
        for start in range(0, len(changes), _AT_ONCE):
            some = changes[start : start + _AT_ONCE]
            await self._controller.change_entries(
                {its_id: entry for _, its_id, entry in some if entry is not None},
                [its_id for _, its_id, entry in some if entry is None],
            )
        if changes:
            _LOG.info("copied from the source: %d entries, removed %d", len(added), len(removed))
        self._done = entries, rights.generation

    @uncancelled
    async def _copy_quotas(self, seen: AccessAtSource) -> None:
        if seen.quotas is None:
            return
        changes: dict[tuple[Entity, str], float | None] = {
            key: value for key, value in seen.quotas.items() if self._quotas.get(*key) != value
        }
        lost = self._copied_quotas - seen.copied_quotas
        if lost:
            for entity, values in self._quotas.by_entity().items():
                for key in values:
                    if quota_digest(entity, key) in lost:
                        changes[entity, key] = None
        if changes or seen.copied_quotas != self._copied_quotas:
            await self._controller.change_quotas(changes, seen.copied_quotas)
            self._copied_quotas = seen.copied_quotas
            _LOG.info("copied from the source: %d quotas, removed ones included", len(changes))

    def _missing_users(self, users: Collection[tuple[str, int]] | None) -> list[str]:
        """Name the users of the source that cannot log in here."""
        missing = sorted(
            {name for name, number in users or () if (name, number) not in self._credentials}
        )
        if not missing:
            return []
        return [
            "passwords of the source: no broker gives them. Set them here by `horolog users add`: "
            + listed([printable(name)[:60] for name in missing], _MOST_NAMED)
        ]


def _grouped(why: Mapping[str, str]) -> Iterable[tuple[str, list[str]]]:
    """Group what is missing by its reason."""
    found: dict[str, list[str]] = {}
    for what, text in why.items():
        found.setdefault(text, []).append(what)
    return found.items()
