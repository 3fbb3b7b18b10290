"""Write `src/horolog/wire/responses.py`: the bodies of responses as the type checker sees them.

python -m tools.response_views > src/horolog/wire/responses.py
"""

import sys
from dataclasses import dataclass, field

from horolog.wire.api import SUPPORTED, ApiKey
from horolog.wire.schema import REQUIRED, Field, Shape, load

HEAD = '''"""The bodies of responses: what `codec.encode_response` takes, whatever the version.

Made by `python -m tools.response_views > src/horolog/wire/responses.py`; do not edit.

Fields that the version of a response lacks are dropped. A field that may be missing has a default,
or is not in every version; a UUID of zeros is None.
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict
from uuid import UUID

from horolog.buffers import Buffer
'''
TYPES = {
    "bool": "bool",
    "string": "str",
    "bytes": "Buffer",
    "records": "Buffer | None",
    "uuid": "UUID | None",
    "float64": "float",
}
BUILT_APART = {ApiKey.PRODUCE, ApiKey.FETCH}
"""Written by `wire.produce` and `wire.fetch`, without mappings."""


@dataclass
class Seen:
    """One field over all versions."""

    newest: Field
    inner: str = ""
    is_nullable: bool = False
    has_default: bool = False
    versions: int = 0

    def annotation(self, versions: int) -> str:
        """Its type; of a structure that is in so many versions."""
        found = self.inner or TYPES.get(self.newest.type, "int")
        if self.newest.is_array:
            found = f"Sequence[{found}]"
        if self.is_nullable and not found.endswith("None"):
            found = f"{found} | None"
        return f"NotRequired[{found}]" if self.has_default or self.versions < versions else found


@dataclass
class View:
    """One structure over all versions."""

    name: str
    versions: int = 0
    fields: dict[str, Seen] = field(default_factory=dict)


def views_of(key: ApiKey) -> dict[str, View]:
    """The structures of a response by the names of its library, the body first."""
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

    for version in range(SUPPORTED[key].max, SUPPORTED[key].min - 1, -1):
        look(load("response", key, version))
    return views


def main() -> None:
    parts = [HEAD]
    names: dict[str, ApiKey] = {}
    for key in SUPPORTED:
        if key in BUILT_APART:
            continue
        views = views_of(key)
        taken = {
            name: name if names.setdefault(name, key) is key else key.title + name for name in views
        }
        for view in reversed(views.values()):
            lines = [f"class {taken[view.name]}(TypedDict):"]
            lines += [f'    """`{view.name}` of {key.title}."""', ""]
            for name, seen in view.fields.items():
                seen.inner = taken.get(seen.inner, seen.inner)
                lines.append(f"    {name}: {seen.annotation(view.versions)}")
            parts.append("\n".join(lines))
    sys.stdout.write("\n\n\n".join(part.rstrip("\n") for part in parts) + "\n")


if __name__ == "__main__":
    main()
