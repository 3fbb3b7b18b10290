"""Messages as kio declares them, without the dataclasses that it makes of the declarations.

kio has a module for each version of a message. To import one takes 5 to 30 ms, in which nothing
else runs: `dataclasses` writes and compiles methods that nothing here calls. So the module's code
is run with stand-ins for all that it imports, which takes a tenth of a millisecond and leaves no
module behind.
"""

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from datetime import timedelta
from importlib.abc import InspectLoader
from importlib.machinery import PathFinder
from typing import Any, ClassVar, Final, NamedTuple, get_origin

from horolog.wire.api import ApiKey

__all__ = ["Declared", "declaration", "declared_fields"]


class Declared(NamedTuple):
    """A field as kio declares it; without a default that is `dataclasses.MISSING`."""

    name: str
    type: Any
    metadata: Mapping[str, Any]
    default: Any


class _DeclaredField:
    """For `dataclasses.field`."""

    def __init__(self, *, metadata: Mapping[str, Any], default: Any = MISSING) -> None:
        self.metadata = metadata
        self.default = default


class _Type(int):
    """For kio's types, which say nothing that the metadata of a field does not; their defaults."""

    @staticmethod
    def parse(span: timedelta) -> int:
        """The milliseconds of a span of time."""
        return span // timedelta(milliseconds=1)

    nested = request = response = None  # of EntityType


class _Imported:
    """For whatever module a declaration imports names from."""

    ClassVar = ClassVar
    field = _DeclaredField

    @staticmethod
    def dataclass(**_: bool) -> Callable[[type[Any]], type[Any]]:
        """Leave the class as it is."""
        return lambda declared: declared

    def __getattr__(self, name: str) -> type[_Type]:
        return _Type


_IMPORTED: Final = _Imported()


def _import(name: str, _globals: Any, _locals: Any, names: tuple[str, ...] | None, _: int) -> Any:
    return _IMPORTED if names else sys.modules[name]


_BUILTINS: Final = {**vars(builtins), "__import__": _import}


def declaration(kind: str, api_key: ApiKey, version: int) -> type[Any]:
    """The class that declares a message.

    Raises:
        LookupError: there is no such version.
    """
    import kio.schema  # noqa: PLC0415 - the broker starts before it needs a schema

    of_api = f"{kio.schema.__path__[0]}/{api_key.name.lower()}"
    spec = PathFinder.find_spec(kind, [f"{of_api}/v{version}"])
    if spec is None:
        raise LookupError(f"{api_key.title} v{version} has no schema")
    assert isinstance(spec.loader, InspectLoader)
    code = spec.loader.get_code(kind)
    assert code is not None, "it is no extension module"
    found: dict[str, Any] = {"__builtins__": _BUILTINS, "__name__": __name__}
    exec(code, found)  # noqa: S102 - an installed module
    message: type[Any] = found[f"{api_key.title}{kind.title()}"]
    return message


def declared_fields(structure: type[Any]) -> Iterator[Declared]:
    """The fields of a structure, in wire order."""
    for name, annotation in structure.__annotations__.items():
        if ClassVar in (annotation, get_origin(annotation)):
            continue
        field = vars(structure).get(name, MISSING)
        if not isinstance(field, _DeclaredField):
            field = _DeclaredField(metadata={}, default=field)
        default = int(field.default) if isinstance(field.default, _Type) else field.default
        yield Declared(name, annotation, field.metadata, default)
