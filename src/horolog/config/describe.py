"""Settings as DescribeConfigs returns them: value, source and synonyms."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import dropwhile
from typing import Final, NamedTuple

from horolog.config.setting import Setting, Status, UpdateMode
from horolog.config.settings import Given, Settings, SettingSource
from horolog.config.tables import (
    broker_setting,
    broker_settings,
    client_metrics_settings,
    group_settings,
    topic_settings,
)
from horolog.config.values import SettingKind, Value, to_text
from horolog.security.stores import Hidden

_MIN_IN_SYNC: Final = "min.insync.replicas"


class Synonym(NamedTuple):
    """A value from one source, strongest first; sensitive values are `None`."""

    name: str
    value: str | None
    source: SettingSource


class DescribedSetting(NamedTuple):
    """A setting with its effective value; a sensitive or absent value is `None`."""

    name: str
    value: str | None
    source: SettingSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    kind: SettingKind
    documentation: str

    @property
    def is_default(self) -> bool:
        """True if the value is the default (the only source in responses before version 1)."""
        return self.source is SettingSource.DEFAULT


def describe_topic(
    settings: Settings, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedSetting]:
    """Return all settings of a topic, or the existing ones of `names`, in their order.

    `overrides` are the topic's.
    """
    settings, entries = _as_kafka_stores(settings), []
    for setting in _asked_for(topic_settings(), names):
        given = list(settings.given_for_topic(setting, overrides))
        difference = settings.bound_from_difference(setting, overrides)
        if difference:
            given.insert(0, difference)
        if given or not setting.is_unlisted:
            entry = _entry(setting, given, _topic_defaults(setting), read_only=False)
            entries.append(_by_main_synonym(entry, setting))
    return entries


def describe_group(
    settings: Settings, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedSetting]:
    """Return all settings of a group, or the existing ones of `names`, in their order.

    A value is shown as it was set, also where the broker's bounds do not allow it any more.
    """
    entries = []
    for setting in _asked_for(group_settings(), names):
        given = list(settings.given_for_topic(setting, overrides, SettingSource.GROUP))
        if given or not setting.is_unlisted:
            defaults = _topic_defaults(setting) or _broker_defaults(setting)
            entries.append(_entry(setting, given, defaults, read_only=False))
    return entries


def describe_client_metrics(
    own: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedSetting]:
    """Return all settings of a subscription to clients' metrics, or the existing ones of `names`.

    One that does not exist has the defaults.
    """
    source, entries = SettingSource.CLIENT_METRICS, []
    for setting in _asked_for(client_metrics_settings(), names):
        text = own.get(setting.name)
        given: list[tuple[Given, Value]] = []
        if text is not None:
            given.append((Given(source, setting.name, text), text))
        entries.append(_entry(setting, given, (), read_only=False))
    return entries


def describe_broker(
    settings: Settings, names: Collection[str] | None = None
) -> list[DescribedSetting]:
    """Return all settings of the broker, or the existing ones of `names`, in their order."""
    settings, entries = _as_kafka_stores(settings), []
    for setting in _asked_for(broker_settings(), names):
        given = list(settings.given_for_broker(setting))
        if given or not setting.is_unlisted:
            read_only = setting.update is UpdateMode.READ_ONLY
            defaults = _broker_defaults(setting)
            entries.append(_entry(setting, given, defaults, read_only=read_only))
    entries.extend(
        _of_listener(settings, name)
        for name in settings.of_listeners()
        if not names or name in names
    )
    return entries


def _of_listener(settings: Settings, name: str) -> DescribedSetting:
    """Return a setting that one listener has, which is in no table."""
    setting = replace(broker_setting(name), of_plugin=False)
    read_only = setting.update is UpdateMode.READ_ONLY
    return _entry(setting, list(settings.given_for_broker(setting)), (), read_only=read_only)


def describe_cluster(
    settings: Settings, names: Collection[str] | None = None
) -> list[DescribedSetting]:
    """Return the cluster-wide dynamic settings."""
    alone = replace(_as_kafka_stores(settings), static={}, dynamic_broker={})
    return [
        entry._replace(synonyms=tuple(it for it in entry.synonyms if it.source is entry.source))
        for entry in describe_broker(alone, names)
        if not entry.is_default
    ]


def documentation(setting: Setting) -> str:
    """Return the purpose of a setting, and its status here."""
    if setting.status is Status.OBEYED:
        return setting.doc
    return f"{setting.doc} {setting.status.value.capitalize()}: {setting.why}."


def _asked_for(table: Mapping[str, Setting], names: Collection[str] | None) -> Iterator[Setting]:
    if not names:
        yield from table.values()
        return
    for name in dict.fromkeys(names):
        if name in table:
            yield table[name]


def _as_kafka_stores(settings: Settings) -> Settings:
    """Return the settings, with `min.insync.replicas` set for the cluster.

    Controllers of Apache Kafka 4 store it there when a cluster begins (KIP-966), and tools expect
    that source.
    """
    given = settings.dynamic_default
    if _MIN_IN_SYNC in given or settings.is_of_cluster:
        return settings
    default = broker_settings()[_MIN_IN_SYNC].default or ""
    text = settings.static.get(_MIN_IN_SYNC, default)
    return replace(settings, dynamic_default={**given, _MIN_IN_SYNC: text})


def _entry(
    setting: Setting,
    given: list[tuple[Given, Value]],
    defaults: tuple[Synonym, ...],
    *,
    read_only: bool,
) -> DescribedSetting:
    value = to_text(given[0][1]) if given else setting.default
    sensitive = setting.sensitive or any(isinstance(place.text, Hidden) for place, _ in given)
    named = tuple(
        Synonym(place.name, None if sensitive else place.text, place.source) for place, _ in given
    )
    return DescribedSetting(
        name=setting.name,
        value=None if sensitive else value,
        source=given[0][0].source if given else SettingSource.DEFAULT,
        read_only=read_only,
        sensitive=sensitive,
        synonyms=named + defaults,
        kind=setting.kind,
        documentation=documentation(setting),
    )


def _by_main_synonym(entry: DescribedSetting, setting: Setting) -> DescribedSetting:
    """Return a topic's setting without what its broker has in another unit only.

    Kafka lists values of a broker from the main name on, which is `log.retention.ms` of
    `retention.ms`. With `log.retention.hours` alone the topic's value counts as a default.
    """
    own = [it for it in entry.synonyms if it.source is SettingSource.TOPIC]
    main = setting.falls_back_to[:1]
    of_broker = dropwhile(lambda it: it.name not in main, entry.synonyms[len(own) :])
    synonyms = (*own, *of_broker)
    source = synonyms[0].source if synonyms else SettingSource.DEFAULT
    return entry._replace(synonyms=synonyms, source=source)


def _topic_defaults(setting: Setting) -> tuple[Synonym, ...]:
    fallbacks = (broker_settings()[name] for name in setting.falls_back_to)
    return tuple(synonym for fallback in fallbacks for synonym in _broker_defaults(fallback))


def _broker_defaults(setting: Setting) -> tuple[Synonym, ...]:
    if setting.default is None or setting.sensitive:
        return ()
    return (Synonym(setting.name, setting.default, SettingSource.DEFAULT),)
