"""The structures of Kafka's messages over all versions served, for the modules that type them."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from horolog.wire.api import ApiKey
from horolog.wire.schema import REQUIRED, Field, Shape, load


@dataclass
class Seen:
    """One field over all versions."""

    newest: Field
    inner: str = ""
    """The structure that it holds, if it holds one."""
    is_nullable: bool = False
    has_default: bool = False
    versions: int = 0


@dataclass
class View:
    """One structure over all versions."""

    name: str
    versions: int = 0
    fields: dict[str, Seen] = field(default_factory=dict)


def views_of(kind: Literal["request", "response"], key: ApiKey) -> dict[str, View]:
    """The structures of a message by the names of its library, the body first."""
    views: dict[str, View] = {}

    def look(shape: Shape) -> None:
        view = views.setdefault(shape.name, View(shape.name))
        view.versions += 1
        for each in shape.fields:
            seen = view.fields.setdefault(each.name, Seen(each))
            seen.versions += 1
            seen.is_nullable = seen.is_nullable or each.is_nullable
            seen.has_default = seen.has_default or each.default is not REQUIRED
            if each.shape is not None:
                seen.inner = each.shape.name
                look(each.shape)

    for version in range(key.versions.max, key.versions.min - 1, -1):
        look(load(kind, key, version))
    return views


TAKEN = ("Member", "ProducerState", "SnapshotId", "BrokerState")
"""Structures of Kafka's that share their name with a class of ours: they get their API's title."""


class ClassNames:
    """Names of classes: that of the structure, with its API before it where another has it.

    Args:
        besides: names that other classes have.
    """

    def __init__(self, besides: Collection[str] = ()) -> None:
        self._besides = besides
        self._first: dict[str, ApiKey | None] = dict.fromkeys(TAKEN)

    def of(self, views: dict[str, View], key: ApiKey | None) -> dict[str, str]:
        """The class of each structure; the fields that hold one name its class from here on."""
        taken = {
            name: name if self._first.setdefault(name, key) is key else f"{key.title}{name}"
            for name in views
        }
        for name, title in taken.items():
            if title in self._besides:
                taken[name] = f"{key.title if key else ''}Answer{name}"
        for view in views.values():
            for seen in view.fields.values():
                seen.inner = taken.get(seen.inner, seen.inner)
        return taken
