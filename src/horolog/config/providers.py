"""`config.providers`: values that a file of properties takes from elsewhere (KIP-297, KIP-421).

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/run/secrets
    ssl.keystore.password=${file:/run/secrets/broker.properties:password}

Apache Kafka keeps a variable as it is where there is no such file or key. Here that is refused:
its text would be the password.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from horolog.config.properties import parse_properties
from horolog.errors import Misconfigured
from horolog.security.files import read_small
from horolog.security.stores import Hidden

PROVIDERS: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_ALLOWED: Final = "allowed.paths"
_ALLOWLIST: Final = "allowlist.pattern"
_VARIABLE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
_LARGEST: Final = 1 << 20
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # as String.trim of Java

_Provider: TypeAlias = Callable[[str, str], str]
"""Returns the value of a path and a key; a `ValueError` has the reason why there is none."""


def is_of_provider(name: str) -> bool:
    """Return True for the class and the parameters of a provider."""
    return re.fullmatch(rf"{re.escape(PROVIDERS)}\.[^.]+\.(?:class|param\..+)", name) is not None


def with_provided(given: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the values of their variables, which are hidden from then on.

    Reads files.

    Raises:
        Misconfigured: a provider is not served, or does not have a value.
    """
    served = providers_of(given)

    def value_of(name: str, match: re.Match[str]) -> str:
        provider = served.get(match[1])
        if provider is None:
            return match[0]
        try:
            return provider(match[2] or "", match[3])
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise Misconfigured(f"{name}={match[0]}: {why}") from None

    values = {}
    for name, text in given.items():
        provided = text
        if served and not name.startswith(PROVIDERS):
            provided = _VARIABLE.sub(partial(value_of, name), text)
        values[name] = text if provided == text else Hidden(provided.strip(_TRIMMED))
    return values


def files_of_secrets(given: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that the variables of properties name."""
    classes = {name: given.get(f"{PROVIDERS}.{name}.class", "") for name in _names(given)}
    for text in given.values():
        for provider, path, key in _VARIABLE.findall(text):
            if classes.get(provider) == f"{_PACKAGE}FileConfigProvider":
                yield Path(path)
            elif classes.get(provider) == f"{_PACKAGE}DirectoryConfigProvider":
                yield Path(path, key)


def providers_of(given: Mapping[str, str]) -> dict[str, _Provider]:
    """Return providers by name.

    Raises:
        Misconfigured: one has no class, another one than Kafka's three, or an unusable parameter.
    """
    return {name: _provider(name, given) for name in _names(given)}


def _names(given: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in given.get(PROVIDERS, "").split(",") if name.strip()]


def _provider(name: str, given: Mapping[str, str]) -> _Provider:
    setting, prefix = f"{PROVIDERS}.{name}.class", f"{PROVIDERS}.{name}.param."
    match given.get(setting, "").strip().removeprefix(_PACKAGE):
        case "FileConfigProvider":
            return partial(_of_file, _allowed(prefix, given))
        case "DirectoryConfigProvider":
            return partial(_of_directory, _allowed(prefix, given))
        case "EnvVarConfigProvider":
            return partial(_of_environment, _allowlist(prefix, given))
    raise Misconfigured(
        f"{PROVIDERS} names {name}, and {setting} has to be {_PACKAGE}FileConfigProvider, "
        "DirectoryConfigProvider or EnvVarConfigProvider"
    )


def _allowed(prefix: str, given: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths below which files may be; without any, all may."""
    text = given.get(prefix + _ALLOWED, "")
    paths = tuple(Path(part.strip()) for part in text.split(",") if part.strip())
    for path in paths:
        if not path.is_absolute() or not path.exists():
            raise Misconfigured(f"{prefix}{_ALLOWED}: {path} has to be absolute, and to exist")
    return paths


def _allowlist(prefix: str, given: Mapping[str, str]) -> re.Pattern[str]:
    text = given.get(prefix + _ALLOWLIST) or ".*"
    try:
        return re.compile(text)
    except re.error as error:
        raise Misconfigured(f"{prefix}{_ALLOWLIST}={text}: {error}") from None


def _permitted(allowed: tuple[Path, ...], path: str) -> Path:
    """Return a path without `..`, which may lead out of what is allowed."""
    normal = Path(os.path.normpath(path)) if allowed else Path(path)
    if allowed and not any(normal.is_relative_to(directory) for directory in allowed):
        raise ValueError(f"{_ALLOWED} of the provider does not permit the path")
    return normal


def _of_file(allowed: tuple[Path, ...], path: str, key: str) -> str:
    if not path:
        raise ValueError("name a file and a key, as ${file:/path/to/file:key}")
    values = parse_properties(_text(_permitted(allowed, path)), path)
    if key not in values:
        raise ValueError("the file does not have the key")
    return values[key]


def _of_directory(allowed: tuple[Path, ...], path: str, key: str) -> str:
    if not path or os.sep in key or key in ("", "..", "."):
        raise ValueError("name a directory and a file in it, as ${directory:/path:file}")
    return _text(_permitted(allowed, path) / key)


def _of_environment(allowlist: re.Pattern[str], path: str, key: str) -> str:
    if path:
        raise ValueError("name a variable of the environment, without a path")
    if allowlist.fullmatch(key) is None or key not in os.environ:
        raise ValueError(f"the environment has no such variable that {_ALLOWLIST} permits")
    return os.environ[key]


def _text(path: Path) -> str:
    try:
        return read_small(str(path), _LARGEST).decode()
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8 text") from None
