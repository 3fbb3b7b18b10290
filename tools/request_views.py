"""Write `src/horolog/wire/requests.py`: the bodies of requests as the type checker sees them.

python -m tools.request_views > src/horolog/wire/requests.py
"""

import sys
from typing import Any

from tools.wire_views import ClassNames, Seen, View, views_of

from horolog.wire.api import ApiKey
from horolog.wire.schema import REQUIRED

HEAD = '''"""The bodies of requests: what a decoded one has, whatever its version.

Made by `python -m tools.request_views > src/horolog/wire/requests.py`; do not edit.

API by API, what is in a body before the body. A structure has Kafka's name; where an earlier API
has one of that name, the API's title before it, by which `schema` finds it. A field that a version
lacks has its default, which is Kafka's own: that of the schema, else 0, an empty string or array,
or False. A UUID of zeros is None.
"""

from uuid import UUID

from horolog.buffers import Buffer
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


def annotation(seen: Seen) -> str:
    """The type of a field."""
    inner = seen.inner or TYPES.get(seen.newest.type, "int")
    if seen.inner and not seen.newest.is_array:
        return f"{inner} | None"
    if seen.newest.is_array:
        inner = f"tuple[{inner}, ...]"
    return inner if not seen.is_nullable or inner.endswith("None") else f"{inner} | None"


def default(seen: Seen) -> str:
    """What a field is in versions that lack it."""
    value = seen.newest.default
    if seen.inner and not seen.newest.is_array:
        value = None
    if value is REQUIRED:
        value = () if seen.newest.is_array else ZEROS.get(seen.newest.type, 0)
    return repr(value)


def written(view: View, name: str) -> str:
    """The class of a structure."""
    lines = [f"class {name}:"]
    for name, seen in view.fields.items():
        otherwise = f" = {default(seen)}" if seen.versions < view.versions else ""
        lines.append(f"    {name}: {annotation(seen)}{otherwise}".replace("'", '"'))
    return "\n".join(lines if view.fields else [*lines, "    pass"])


def main() -> None:
    parts = [HEAD]
    names = ClassNames()
    for key in ApiKey:
        views = views_of("request", key)
        taken = names.of(views, key)
        parts += [written(view, taken[view.name]) for view in reversed(views.values())]
    sys.stdout.write("\n\n\n".join(part.rstrip("\n") for part in parts) + "\n")


if __name__ == "__main__":
    main()
