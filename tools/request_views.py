"""Write `src/horolog/wire/requests.py`: the bodies of requests as the type checker sees them.

python -m tools.request_views > src/horolog/wire/requests.py
"""

import sys
from dataclasses import dataclass, field
from typing import Any

from horolog.wire.api import SUPPORTED, ApiKey
from horolog.wire.schema import REQUIRED, Field, Shape, load

HEAD = '''"""The bodies of requests: what a decoded one has, whatever its version.

Made by `python -m tools.request_views > src/horolog/wire/requests.py`; do not edit.

A field that a version lacks has its default, which is Kafka's own: that of the schema, else 0, an
empty string or array, or False. A UUID of zeros is None.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from horolog.buffers import Buffer
from horolog.wire.api import ApiKey
'''
ZEROS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "float64": 0.0, "uuid": None}
TYPES = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "records": "Buffer",
    "uuid": "UUID | None",
    "float64": "float",
}


@dataclass
class Seen:
    """One field over all versions."""

    newest: Field
    view: str = ""
    is_nullable: bool = False
    versions: int = 0

    def annotation(self) -> str:
        """Its type."""
        inner = self.view or TYPES.get(self.newest.type, "int")
        if self.view and not self.newest.is_array:
            return f"{inner} | None"
        if self.newest.is_array:
            inner = f"tuple[{inner}, ...]"
        return inner if not self.is_nullable or inner.endswith("None") else f"{inner} | None"

    def default(self) -> str:
        """What it is in versions that lack it."""
        value = self.newest.default
        if self.view and not self.newest.is_array:
            value = None
        if value is REQUIRED:
            value = () if self.newest.is_array else ZEROS.get(self.newest.type, 0)
        return repr(value)


@dataclass
class View:
    """One structure over all versions."""

    name: str
    versions: int = 0
    fields: dict[str, Seen] = field(default_factory=dict)


def views_of(key: ApiKey) -> dict[str, View]:
    """The structures of a request by the names of its library, the body first."""
    views: dict[str, View] = {}

    def look(shape: Shape) -> None:
        view = views.setdefault(shape.name, View(shape.name))
        view.versions += 1
        for each in shape.fields:
            seen = view.fields.setdefault(each.name, Seen(each))
            seen.versions += 1
            seen.is_nullable = seen.is_nullable or each.is_nullable
            if each.shape is not None:
                seen.view = each.shape.name
                look(each.shape)

    for version in range(SUPPORTED[key].max, SUPPORTED[key].min - 1, -1):
        look(load("request", key, version))
    return views


def written(view: View, key: ApiKey, taken: dict[str, str]) -> str:
    """The class of a structure."""
    lines = [
        f"class {taken[view.name]}:",
        f'    """`{view.name}` of {key.title}."""',
        "",
        "    __slots__ = ()",
    ]
    for name, seen in view.fields.items():
        seen.view = taken.get(seen.view, seen.view)
        default = f" = {seen.default()}" if seen.versions < view.versions else ""
        lines.append(f"    {name}: {seen.annotation()}{default}".replace("'", '"'))
    return "\n".join(lines)


def main() -> None:
    parts = [HEAD]
    registered = []
    names: dict[str, ApiKey] = {}
    for key in SUPPORTED:
        views = views_of(key)
        taken = {}
        for name in views:
            taken[name] = name if names.setdefault(name, key) is key else key.title + name
        parts += [written(view, key, taken) for view in reversed(views.values())]
        registered += [f"        ApiKey.{key.name}: {{"]
        registered += [f'            "{name}": {taken[name]},' for name in views]
        registered += ["        },"]
    parts.append(
        "VIEWS: Final[Mapping[ApiKey, Mapping[str, type]]] = MappingProxyType(\n    {\n"
        + "\n".join(registered)
        + "\n    }\n)\n"
        '"""The views by API and the name of the structure."""'
    )
    sys.stdout.write("\n\n\n".join(part.rstrip("\n") for part in parts) + "\n")


if __name__ == "__main__":
    main()
