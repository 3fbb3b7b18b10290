"""Kio's declarations of messages, read without its dataclasses.

kio has a module for each version of a message. To import a module takes 5 to 30 ms, in which no
other code runs: `dataclasses` compiles methods that are never called here. So the module's code is
run with stand-ins for its imports, which takes a tenth of a millisecond and registers no module.
"""

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from datetime import timedelta
from importlib.abc import InspectLoader
from importlib.machinery import PathFinder
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, get_origin

from horolog.wire.api import ApiKey

__all__ = ["Declared", "declaration", "declared_fields"]


_NO_METADATA: Final[Mapping[str, Any]] = MappingProxyType({})


class Declared(NamedTuple):
    """A field as kio declares it; the default may be `dataclasses.MISSING`."""

    name: str
    type: Any
    metadata: Mapping[str, Any]
    default: Any


class _DeclaredField:
    """Stand-in for `dataclasses.field`."""

    def __init__(
        self, *, metadata: Mapping[str, Any] = _NO_METADATA, default: Any = MISSING
    ) -> None:
        self.metadata = metadata
        self.default = default


class _Type(int):
    """Stand-in for kio's types and their defaults; the metadata of a field has its type."""

    @staticmethod
    def parse(span: timedelta) -> int:
        """Return the milliseconds of a span of time."""
        return span // timedelta(milliseconds=1)

    nested = request = response = None  # of EntityType


class _Imported:
    """Stand-in for the modules from which a declaration imports names."""

    ClassVar = ClassVar
    field = _DeclaredField

    @staticmethod
    def dataclass(**_: bool) -> Callable[[type[Any]], type[Any]]:
        """Return a decorator that leaves the class as it is."""
        return lambda declared: declared

    def __getattr__(self, name: str) -> type[_Type]:
        return _Type


_IMPORTED: Final = _Imported()


def _import(name: str, _globals: Any, _locals: Any, names: tuple[str, ...] | None, _: int) -> Any:
    return _IMPORTED if names else sys.modules[name]


_BUILTINS: Final = {**vars(builtins), "__import__": _import}


def declaration(kind: str, api_key: ApiKey, version: int) -> type[Any]:
    """Return the class that declares a message.

    Raises:
        LookupError: the version does not exist.
    """
    import kio.schema  # noqa: PLC0415 - the broker starts before it needs a schema

    of_api = f"{kio.schema.__path__[0]}/{api_key.name.lower()}"
    spec = PathFinder.find_spec(kind, [f"{of_api}/v{version}"])
    if spec is None:
        raise LookupError(f"{api_key.title} v{version} has no schema")
    assert isinstance(spec.loader, InspectLoader)
    code = spec.loader.get_code(kind)
    assert code is not None, "it is no extension module"
    names: dict[str, Any] = {"__builtins__": _BUILTINS, "__name__": __name__}
    exec(code, names)  # noqa: S102 - an installed module
    message: type[Any] = names[f"{api_key.title}{kind.title()}"]
    return message


def declared_fields(structure: type[Any]) -> Iterator[Declared]:
    """Yield the fields of a structure, in wire order."""
    for name, annotation in structure.__annotations__.items():
        if ClassVar in (annotation, get_origin(annotation)):
            continue
        field = vars(structure).get(name, MISSING)
        if not isinstance(field, _DeclaredField):
            field = _DeclaredField(metadata={}, default=field)
        default = int(field.default) if isinstance(field.default, _Type) else field.default
        yield Declared(name, annotation, field.metadata, default)
