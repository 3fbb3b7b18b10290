"""Tables of settings, read from `topic_settings.txt`, `group_settings.txt`, `broker_settings.txt`.

Loaded on first use, so that importing `horolog.config` stays cheap.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from horolog.config.providers import PROVIDERS, is_of_provider
from horolog.config.rules import rule_of
from horolog.config.setting import Setting, Status, UpdateMode
from horolog.config.tls import OF_METRICS
from horolog.config.values import SettingKind

# Older names; KIP-32 has the first three, for topics and brokers alike.
_ALIASES = {
    "message.timestamp.difference.max.ms": ("max.message.time.difference.ms",),
    "log.message.timestamp.difference.max.ms": ("max.message.time.difference.ms",),
    "log.message.timestamp.type": ("message.timestamp.type",),
    "node.id": ("broker.id",),
}
_EMPTY = '""'  # a default that is there, and not the absence of one


@cache
def topic_settings() -> Mapping[str, Setting]:
    """Return every topic setting by name."""
    return {setting.name: setting for setting in _read_table("topic_settings.txt")}


@cache
def broker_settings() -> Mapping[str, Setting]:
    """Return every broker setting by name."""
    return {setting.name: setting for setting in _read_table("broker_settings.txt")}


@cache
def group_settings() -> Mapping[str, Setting]:
    """Return every setting of a single group by name."""
    return {setting.name: setting for setting in _read_table("group_settings.txt")}


@cache
def client_metrics_settings() -> Mapping[str, Setting]:
    """Return every setting of a subscription to clients' metrics by name."""
    return {setting.name: setting for setting in _read_table("client_metrics_settings.txt")}


def group_setting(name: str) -> Setting:
    """Return the setting of groups with this name; `ValueError` if it does not exist."""
    return _find(name, group_settings(), "group")


def topic_setting(name: str) -> Setting:
    """Return the topic setting with this name or alias; `ValueError` if it does not exist."""
    return _find(name, topic_settings(), "topic")


def broker_setting(name: str) -> Setting:
    """Return the broker setting with this name or alias; `ValueError` if it does not exist."""
    if name.startswith("listener.name."):
        return _of_listener(name)
    found = broker_settings().get(name.removeprefix(OF_METRICS))
    if found is not None and name.startswith(_OF_METRICS):
        return replace(found, name=name, of_plugin=True, update=UpdateMode.READ_ONLY)
    if is_of_provider(name):
        base = broker_settings()[PROVIDERS]
        return replace(base, name=name, kind=SettingKind.STRING, of_plugin=True)
    return _find(name, broker_settings(), "broker")


def secrets_among(names: Iterable[str]) -> list[str]:
    """Return the names of broker settings that are passwords; unknown names are none."""

    def is_secret(name: str) -> bool:
        try:
            return broker_setting(name).kind is SettingKind.PASSWORD
        except ValueError:
            return False

    return [name for name in names if is_secret(name)]


_OF_LOGINS: Final = (
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "connections.max.reauth.ms",
)
_OF_CONNECTIONS: Final = re.compile(
    r"listener\.name\.[^.]+\."
    r"(?P<key>max\.connections|max\.connection\.creation\.rate|num\.network\.threads)"
)
_OF_TOKENS: Final = re.compile(
    r"listener\.name\.[^.]+\.(?P<mechanism>oauthbearer\.)?(?P<key>sasl\.(?:login|oauthbearer|server)\..+)"
)
_HANDLERS: Final = ("sasl.server.callback.handler.class", "sasl.login.callback.handler.class")
_OF_STORES: Final = ("ssl.key.", "ssl.keystore.", "ssl.truststore.")
"""Settings of TLS that may change while the broker runs, as in Kafka."""
_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.(?P<key>ssl\..+)")
_OF_METRICS: Final = f"{OF_METRICS}ssl."


def _of_listener(name: str) -> Setting:
    """Return the setting of one listener, which is in no table."""
    if (match := _OF_CONNECTIONS.fullmatch(name)) is not None:
        base = broker_settings()[match["key"]]
        return replace(base, name=name, of_plugin=True, rule=rule_of("at least 1"))
    for key in _OF_LOGINS:
        if name.endswith(f".{key}"):
            base = broker_settings()[key]
            return replace(base, name=name, of_plugin=True, status=Status.OBEYED)
    match = _OF_LISTENER.fullmatch(name)
    if match and (found := broker_settings().get(match["key"])) is not None:
        is_of_store = match["key"].startswith(_OF_STORES)
        update = UpdateMode.PER_BROKER if is_of_store else UpdateMode.READ_ONLY
        return replace(found, name=name, of_plugin=True, update=update)
    match = _OF_TOKENS.fullmatch(name)
    if match and (found := broker_settings().get(match["key"])) is not None:
        is_obeyed = match["mechanism"] and match["key"] in _HANDLERS
        status = Status.OBEYED if is_obeyed else found.status
        return replace(found, name=name, of_plugin=True, status=status)
    raise ValueError(
        f"Unknown broker config name: {name}. A listener can have {', '.join(_OF_LOGINS)}, "
        "max.connections, max.connection.creation.rate and settings that begin with ssl., "
        "sasl.oauthbearer. or sasl.login. of its own"
    )


def _find(name: str, table: Mapping[str, Setting], scope: str) -> Setting:
    if name in table:
        return table[name]
    for setting in table.values():
        if name in setting.aliases:
            return setting
    raise ValueError(f"Unknown {scope} config name: {name}{_suggestion(name, table, scope)}")


def _suggestion(name: str, table: Mapping[str, Setting], scope: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake pays for it

    others = {"topic": broker_settings(), "broker": topic_settings(), "group": {}}
    other = others[scope]
    if name in other:
        inherits = [s.name for s in topic_settings().values() if name in s.falls_back_to]
        meant = inherits[0] if scope == "topic" and inherits else other[name].falls_back_to[:1]
        if meant:
            return f". Did you mean {meant if isinstance(meant, str) else meant[0]}?"
    close = get_close_matches(name, table, n=1, cutoff=0.75)
    return f". Did you mean {close[0]}?" if close else ""


def _read_table(file_name: str) -> Iterator[Setting]:
    of_brokers = file_name.startswith("broker")
    status, why = Status.OBEYED, ""
    text = Path(__file__).with_name(file_name).read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            word, _, why = line.strip("[]").partition(": ")
            status = Status[word.upper()]
        elif line and not line.startswith("#"):
            yield _read_row(line, status, why, of_brokers=of_brokers)


def _read_row(line: str, status: Status, why: str, *, of_brokers: bool) -> Setting:
    name, kind, default, words, fifth, doc = (cell.strip() for cell in line.split("|", 5))
    kind, _, mark = kind.partition(", ")
    return Setting(
        name=name,
        kind=SettingKind[kind.upper()],
        default="" if default == _EMPTY else default or None,
        rule=rule_of(words),
        doc=doc,
        status=status,
        why=why,
        update=UpdateMode(fifth) if of_brokers else UpdateMode.CLUSTER_WIDE,
        falls_back_to=tuple(fifth.split(", ")) if fifth and not of_brokers else (),
        aliases=_ALIASES.get(name, ()),
        internal=mark == "internal",
        gone=mark == "gone",
        of_plugin=mark == "plugin",
    )
