"""Write `src/horolog/wire/responses.py`: the bodies of responses as the type checker sees them.

python -m tools.response_views > src/horolog/wire/responses.py
"""

import sys

from tools.wire_views import ClassNames, Seen, views_of

from horolog.wire.api import SUPPORTED, ApiKey

HEAD = '''"""The bodies of responses: what `codec.encode_response` takes, whatever the version.

Made by `python -m tools.response_views > src/horolog/wire/responses.py`; do not edit.

API by API, what is in a body before the body, named as in `requests`. Fields that the version of
a response lacks are dropped. A field that may be missing has a default, or is not in every version;
a UUID of zeros is None.
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


def annotation(seen: Seen, versions: int) -> str:
    """The type of a field of a structure that is in so many versions."""
    found = seen.inner or TYPES.get(seen.newest.type, "int")
    if seen.newest.is_array:
        found = f"Sequence[{found}]"
    if seen.is_nullable and not found.endswith("None"):
        found = f"{found} | None"
    return f"NotRequired[{found}]" if seen.has_default or seen.versions < versions else found


def main() -> None:
    parts = [HEAD]
    of_requests = ClassNames()
    named = [of_requests.of(views_of("request", key), key).values() for key in ApiKey]
    names = ClassNames({name for of_api in named for name in of_api})
    # A class name is unique in the package: a structure of a request keeps its short name.
    for key in ApiKey:
        names.of(views_of("request", key), None)
    for key in SUPPORTED:
        if key in BUILT_APART:
            continue
        views = views_of("response", key)
        taken = names.of(views, key)
        for view in reversed(views.values()):
            lines = [f"class {taken[view.name]}(TypedDict):"]
            for name, seen in view.fields.items():
                lines.append(f"    {name}: {annotation(seen, view.versions)}")
            parts.append("\n".join(lines))
    sys.stdout.write("\n\n\n".join(part.rstrip("\n") for part in parts) + "\n")


if __name__ == "__main__":
    main()
