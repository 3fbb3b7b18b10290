"""Changes of settings while the broker runs: AlterConfigs and IncrementalAlterConfigs (KIP-339).

Pure functions: they return the settings to store. A refusal carries Kafka's error code:
`invalid_config` for topics and groups, `invalid_request` for brokers (as in Kafka, KAFKA-13609).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from horolog.config.setting import Setting, UpdateMode
from horolog.config.settings import Settings
from horolog.config.tables import broker_setting, group_setting, topic_setting
from horolog.config.tls import PREFIX
from horolog.config.topic import TopicConfig
from horolog.config.values import SettingKind
from horolog.errors import ErrorCode, Misconfigured, RequestRefused


class Operation(IntEnum):
    """Way to change a setting, by the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class SettingChange(NamedTuple):
    """One change of a setting; `value` is ignored for DELETE."""

    name: str
    operation: Operation
    value: str | None


def check_topic(
    settings: Settings, overrides: Mapping[str, str | None], *, asked: bool = True
) -> TopicConfig:
    """Return the effective settings of a topic with these overrides; `RequestRefused` if invalid.

    Not `asked` are those that it has already; see `Settings.topic_config`.
    """
    given = {name: _required(name, value) for name, value in overrides.items()}
    try:
        return settings.topic_config(given, asked=asked)
    except ValueError as cause:
        raise RequestRefused(ErrorCode.invalid_config, str(cause)) from None


def alter_topic(
    settings: Settings, overrides: Mapping[str, str], changes: Sequence[SettingChange]
) -> dict[str, str]:
    """Return the topic's overrides after `changes`, validated as a whole."""
    after = _altered(settings, overrides, changes, topic_setting)
    check_topic(settings, after)
    return after


def alter_group(
    settings: Settings, overrides: Mapping[str, str], changes: Sequence[SettingChange]
) -> dict[str, str]:
    """Return the group's settings after `changes`, validated as a whole."""
    after = _altered(settings, overrides, changes, group_setting)
    try:
        settings.check_group(after)
    except ValueError as cause:
        raise RequestRefused(ErrorCode.invalid_config, str(cause)) from None
    return after


def _altered(
    settings: Settings,
    overrides: Mapping[str, str],
    changes: Sequence[SettingChange],
    find: Callable[[str], Setting],
) -> dict[str, str]:
    _refuse_doubles(changes)
    after = dict(overrides)
    for change in changes:
        try:
            setting = None if change.operation == Operation.DELETE else find(change.name)
        except ValueError as cause:
            raise RequestRefused(ErrorCode.invalid_config, str(cause)) from None
        given = settings.given_for_topic(setting, after) if setting else ()
        current = next((text for (_, _, text), _ in given), setting.default if setting else None)
        _apply(after, change, setting, current)
    return after


def alter_broker(
    settings: Settings,
    changes: Sequence[SettingChange],
    *,
    cluster_wide: bool,
    replaces: bool = False,
) -> Settings:
    """Return the settings after `changes` to the dynamic settings of this broker or the cluster.

    They are made to what there is, or to nothing if they replace it.
    """
    _refuse_doubles(changes)
    before = settings.dynamic_default if cluster_wide else settings.dynamic_broker
    layer = {} if replaces else dict(before)
    for change in changes:
        setting = _changeable(change.name, cluster_wide=cluster_wide)
        current = next((text for (_, _, text), _ in settings.given_for_broker(setting)), None)
        _apply(layer, change, setting, current or setting.default)
    if cluster_wide:
        return checked(replace(settings, dynamic_default=layer))
    return checked(replace(settings, dynamic_broker=layer))


def checked(settings: Settings) -> Settings:
    """Return the settings if a broker can run with them; `RequestRefused` otherwise."""
    try:
        settings.broker_config()
    except Misconfigured as cause:
        raise RequestRefused(ErrorCode.invalid_request, str(cause)) from None
    return settings


def _changeable(name: str, *, cluster_wide: bool) -> Setting:
    try:
        setting = broker_setting(name)
    except ValueError as cause:
        raise RequestRefused(ErrorCode.invalid_config, str(cause)) from None
    if name.startswith(PREFIX):
        raise RequestRefused(
            ErrorCode.invalid_request,
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: {name}",
        )
    if setting.update is UpdateMode.READ_ONLY:
        raise RequestRefused(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {name}. It is read when the broker starts",
        )
    if cluster_wide and setting.update is UpdateMode.PER_BROKER:
        raise RequestRefused(
            ErrorCode.invalid_request,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{name}",
        )
    return setting


def _apply(
    layer: dict[str, str], change: SettingChange, setting: Setting | None, current: str | None
) -> None:
    if change.operation == Operation.DELETE:
        layer.pop(change.name, None)
        return
    value = _required(change.name, change.value)
    if change.operation == Operation.SET:
        layer[change.name] = value
        return
    if setting is None or setting.kind is not SettingKind.LIST:
        raise RequestRefused(
            ErrorCode.invalid_config,
            f"Can't {change.operation.name} to key {change.name} because its type is not LIST.",
        )
    parts = [part for part in (current or "").split(",") if part]
    operands = [part.strip() for part in value.split(",")]
    if change.operation == Operation.APPEND:
        parts += [part for part in operands if part not in parts]
    else:
        parts = [part for part in parts if part not in operands]
    layer[change.name] = ",".join(parts)


def _refuse_doubles(changes: Sequence[SettingChange]) -> None:
    names = Counter(change.name for change in changes)
    doubles = sorted(name for name, count in names.items() if count > 1)
    if doubles:
        raise RequestRefused(
            ErrorCode.invalid_request, f"Error due to duplicate config keys: {', '.join(doubles)}"
        )


def _required(name: str, value: str | None) -> str:
    if value is None:
        raise RequestRefused(ErrorCode.invalid_request, f"Null value not supported for : {name}")
    return value
