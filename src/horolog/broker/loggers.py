"""Describes and sets the levels of this broker's loggers as Kafka does (KIP-412).

    root            all lines, of libraries too
    horolog...      the loggers of this package, by their names in Python's logging
    kafka.authorizer.logger    what clients were denied, and at DEBUG what they were granted

They are not stored: a restart has the levels of the command line again.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from horolog.broker.audit import RIGHTS
from horolog.config import DescribedSetting, Operation, SettingChange, SettingKind, SettingSource
from horolog.errors import ErrorCode, RequestRefused

_ROOT: Final = "root"
_PACKAGE: Final = "horolog"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}


def describe_loggers(names: Collection[str] | None) -> list[DescribedSetting]:
    """Return the effective level of every logger, or of the existing ones in `names`."""
    return [
        DescribedSetting(
            name,
            next(
                (known for known, least in _LEVELS.items() if logger.getEffectiveLevel() >= least),
                "TRACE",
            ),
            SettingSource.DYNAMIC_BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            synonyms=(),
            kind=SettingKind.STRING,
            documentation=f"The level of a logger: {', '.join(_LEVELS)}.",
        )
        for name, logger in sorted(_loggers().items())
        if not names or name in names
    ]


def alter_loggers(changes: Sequence[SettingChange], *, validate_only: bool) -> None:
    """Set levels of loggers, or delete them in favour of their parents'; all or none.

    Raises:
        RequestRefused: a logger does not exist or the level is none (40); the operation is neither
            SET nor DELETE, or the root logger's level would be deleted (42).
    """
    loggers = _loggers()
    levels: dict[str, int] = {}
    for name, operation, value in changes:
        if operation not in (Operation.SET, Operation.DELETE):
            raise RequestRefused(
                ErrorCode.invalid_request,
                f"{operation.name} operation is not allowed for the BROKER_LOGGER resource",
            )
        if name not in loggers:
            raise RequestRefused(ErrorCode.invalid_config, f"Logger {name} does not exist!")
        if operation is Operation.DELETE and name == _ROOT:
            raise RequestRefused(
                ErrorCode.invalid_request,
                "Removing the log level of the root logger is not allowed",
            )
        level = logging.NOTSET if operation is Operation.DELETE else _LEVELS.get(value or "")
        if level is None:
            raise RequestRefused(
                ErrorCode.invalid_config,
                f"Cannot set the log level of {name} to {value}: allowed is {', '.join(_LEVELS)}",
            )
        levels[name] = level
    if not validate_only:
        for name, level in levels.items():
            loggers[name].setLevel(level)


def _loggers() -> dict[str, logging.Logger]:
    """Return the root logger, the loggers of this package, and that of Kafka's audit."""
    made = list(logging.root.manager.loggerDict.items())
    return {_ROOT: logging.root} | {
        name: logger
        for name, logger in made
        if isinstance(logger, logging.Logger)
        and (name.partition(".")[0] == _PACKAGE or name == RIGHTS.name)
    }
