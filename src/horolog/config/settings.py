"""Settings by their source, and the effective configuration that they resolve to.

The effective value of a topic setting comes from the first of: the topic's own settings, the
broker's dynamic settings, the cluster-wide dynamic settings, the file that the broker was
started with, Kafka's default.

The timestamp bounds (KIP-937) are resolved one by one and then combined: `before.max.ms` and
`after.max.ms` win over the deprecated `message.timestamp.difference.max.ms` unless they are
2^63-1, and the difference wins over a default. (Kafka 3.9 cannot distinguish its default from a
given 2^63-1. Kafka 4's default of one hour for `after` would hide every difference if it counted
as given.)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import ip_address
from typing import Any, NamedTuple

from horolog.config.broker import BrokerConfig
from horolog.config.cluster import parse_cluster
from horolog.config.consumer_groups import check_group, consumer_group_settings
from horolog.config.listeners import (
    INTER_BROKER,
    INTER_MECHANISM,
    INTER_PROTOCOL,
    Endpoint,
    ListenerLimits,
    check_early,
    inter_broker_listener,
    of_listener,
    parse_protocols,
    resolve_listeners,
)
from horolog.config.logins import MECHANISMS, Login, parse_login
from horolog.config.providers import providers_of
from horolog.config.releases import IGNORED_SINCE, ZSTD_SINCE, record_format_of, release_of
from horolog.config.setting import Setting
from horolog.config.tables import (
    broker_setting,
    broker_settings,
    group_setting,
    topic_setting,
    topic_settings,
)
from horolog.config.tls import PREFIX, parse_metrics_tls, parse_tls
from horolog.config.topic import LONG_MAX, TopicConfig
from horolog.config.values import Value
from horolog.errors import Misconfigured
from horolog.record.timestamps import TimestampType
from horolog.security.stores import Hidden

_UNITS_MS = {"hours": 3_600_000, "minutes": 60_000}
_BEFORE = "message.timestamp.before.max.ms"
_AFTER = "message.timestamp.after.max.ms"
_FORMAT = "message.format.version"
_PROTOCOL = "inter.broker.protocol.version"
_IGNORE_UNKNOWN = "horolog.ignore.unknown.settings"
_ZSTD = "may_store_zstd"
_DIFFERENCE = "message.timestamp.difference.max.ms"
_SHORTEST_LAG, _LONGEST_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
_LEAST_KEY_MAP_BYTES = 1 << 20
_RESOLVED = frozenset(
    {
        "listeners",
        "advertised_listeners",
        "cluster",
        "log_dir",
        "inter_broker_listener_name",
        "listener_limits",
        "max_connections_per_ip_overrides",
        "super_users",
        "logins",
        "metrics_tls",
        "tls",
    }
)
"""Fields of `BrokerConfig` that are not the value of one setting as it is."""


class SettingSource(IntEnum):
    """Source of a value, by the numbers of a DescribeConfigs response (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Given(NamedTuple):
    """A value as given: its source, name and text."""

    source: SettingSource
    name: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Settings of a broker: static, dynamic for the cluster, and dynamic for this broker.

    They may be passwords, so the `repr` has none of them.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic_broker: Mapping[str, str] = field(default_factory=dict)
    is_of_cluster: bool = field(default=False, compare=False)
    """Whether the dynamic ones are what a cluster's controllers have stored."""

    def topic_config(
        self, overrides: Mapping[str, str] | None = None, *, asked: bool = False
    ) -> TopicConfig:
        """Return the effective settings of a topic with these overrides.

        If one lag of compaction is the topic's own, the other is the broker's, and they contradict
        each other, the topic's own is used. With `asked` the contradiction is refused, as Kafka
        does when settings are altered.

        Raises:
            ValueError: A name is unknown or a value invalid.
        """
        overrides = overrides or {}
        for name, text in overrides.items():
            topic_setting(name).read(text, name)
        values: dict[str, Any] = {}
        for name in TopicConfig.__dataclass_fields__:
            if name == _ZSTD:
                values[name] = self._protocol() >= ZSTD_SINCE
                continue
            setting = topic_settings()[name.replace("_", ".")]
            if setting.name == _FORMAT:
                values[name] = self._record_format(overrides)
            else:
                values[name] = _typed(name, self._topic_value(setting, overrides))
        shortest, longest = values["min_compaction_lag_ms"], values["max_compaction_lag_ms"]
        if shortest > longest:
            own = {_SHORTEST_LAG, _LONGEST_LAG} & overrides.keys()
            if asked or len(own) != 1:
                raise ValueError(
                    "conflict topic config setting min.compaction.lag.ms "
                    f"({shortest}) > max.compaction.lag.ms ({longest})"
                )
            lag_ms = shortest if _SHORTEST_LAG in own else longest
            values["min_compaction_lag_ms"] = values["max_compaction_lag_ms"] = lag_ms
        return TopicConfig(**values)

    def broker_config(self) -> BrokerConfig:
        """Return the effective settings of the broker; `Misconfigured` lists all invalid ones."""
        try:
            self._check_given()
            return self._broker_config()
        except ValueError as cause:
            raise Misconfigured(self._without_provided(str(cause))) from None

    def _without_provided(self, message: str) -> str:
        """Return a message without the values that a provider has brought in."""
        for text in self.static.values():
            if isinstance(text, Hidden) and text:
                message = message.replace(text, "[hidden]")
        return message

    def check_group(self, overrides: Mapping[str, str]) -> None:
        """Check the settings of a group.

        Raises:
            ValueError: a name is unknown, or a value invalid or out of the broker's bounds.
        """
        values = {name: group_setting(name).read(text) for name, text in overrides.items()}
        check_group(values, self._broker_value)

    def unknown(self) -> list[str]:
        """Return a sentence for each given name that is no broker setting."""
        return [
            complaint
            for name, _ in self._given()
            if (complaint := _complaint(broker_setting, name))
        ]

    def deprecated(self, overrides: Mapping[str, str] | None = None) -> list[str]:
        """Return a sentence for each deprecated name in overrides, or in the broker's settings."""
        setting, names = topic_settings()[_DIFFERENCE], set(overrides or ())
        known = {setting.name, *setting.aliases}
        if overrides is None:
            names = {name for name, _ in self._given()}
            for fallback in map(broker_setting, setting.falls_back_to):
                known |= {fallback.name, *fallback.aliases}
        return [
            f"{name} is deprecated (KIP-937): give {_BEFORE} and {_AFTER}, of the broker with "
            "log. in front, which win over it"
            for name in sorted(names & known)
        ]

    def given_for_topic(
        self,
        setting: Setting,
        overrides: Mapping[str, str],
        source: SettingSource = SettingSource.TOPIC,
    ) -> Iterator[tuple[Given, Value]]:
        """Yield every value given for a topic setting, the effective one first.

        Likewise for a setting of a group, whose `source` is another.
        """
        yield from _given_in(overrides, source, setting)
        for of_layer, layer in self._layers():
            for fallback in map(broker_setting, setting.falls_back_to):
                for given, value in _given_in(layer, of_layer, fallback):
                    yield given, _in_ms(value, fallback.name)

    def given_for_broker(self, setting: Setting) -> Iterator[tuple[Given, Value]]:
        """Yield every value given for a broker setting, the effective one first."""
        for source, layer in self._layers():
            for name in (setting.name, *setting.aliases):
                if name in layer:
                    text = layer[name]
                    # An alias may be a setting with values of its own, as broker.id of node.id.
                    yield Given(source, name, text), broker_setting(name).read(text, name)

    def of_listeners(self) -> list[str]:
        """Return the given settings of single listeners."""
        names = {name for name, _ in self._given() if name.startswith("listener.name.")}
        return sorted(name for name in names if not _complaint(broker_setting, name))

    def bound_from_difference(
        self, setting: Setting, overrides: Mapping[str, str]
    ) -> tuple[Given, Value] | None:
        """Return the deprecated difference if it determines this timestamp bound."""
        if setting.name not in (_BEFORE, _AFTER):
            return None
        own = next(self.given_for_topic(setting, overrides), None)
        if own and own[1] != LONG_MAX:
            return None
        return next(self.given_for_topic(topic_settings()[_DIFFERENCE], overrides), None)

    def _layers(self) -> Iterator[tuple[SettingSource, Mapping[str, str]]]:
        if self.dynamic_broker:
            yield SettingSource.DYNAMIC_BROKER, self.dynamic_broker
        if self.dynamic_default:
            yield SettingSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default
        yield SettingSource.STATIC_BROKER, self.static

    def _topic_value(self, setting: Setting, overrides: Mapping[str, str]) -> Value | None:
        if difference := self.bound_from_difference(setting, overrides):
            return difference[1]
        if setting.name == "segment.bytes":
            internal = topic_settings()["internal.segment.bytes"]
            for _, value in self.given_for_topic(internal, overrides):
                return value
        for _, value in self.given_for_topic(setting, overrides):
            return value
        return setting.default_value

    def _record_format(self, overrides: Mapping[str, str]) -> int:
        """Return the record format to store.

        A topic's own value is ignored if it is too new, as in Kafka.
        """
        if self._protocol() >= IGNORED_SINCE:
            return 2
        protocol = str(self._broker_value(_PROTOCOL))
        newest = record_format_of(protocol)
        setting = topic_settings()[_FORMAT]
        given = [
            (each.source, str(value)) for each, value in self.given_for_topic(setting, overrides)
        ]
        for source, release in (*given, (SettingSource.DEFAULT, setting.default or "")):
            if record_format_of(release) <= newest:
                return record_format_of(release)
            if source is not SettingSource.TOPIC:
                raise ValueError(
                    f"log.{_FORMAT}={release} stores format v{record_format_of(release)}, for "
                    f"which {_PROTOCOL}={protocol} is too old: set the first as low as the second"
                )
        raise AssertionError("the default is the last")

    def _protocol(self) -> tuple[int, int]:
        """Return the release of the inter-broker protocol."""
        return release_of(str(self._broker_value(_PROTOCOL)))

    def _broker_value(self, name: str) -> Any:
        setting = broker_setting(name)
        for given, value in self.given_for_broker(setting):
            if given.name == "broker.id" and value == -1:
                continue
            return value
        return setting.default_value

    def _given(self) -> Iterator[tuple[str, str]]:
        for layer in (self.static, self.dynamic_default, self.dynamic_broker):
            yield from layer.items()

    def _check_given(self) -> None:
        """Check each name and value, and raise a `ValueError` with all that is wrong."""
        wrong = [
            complaint
            for name, text in self._given()
            if not _complaint(broker_setting, name)
            and (complaint := _complaint(broker_setting(name).read, text, name))
        ]
        unknown = [] if self._broker_value(_IGNORE_UNKNOWN) else self.unknown()
        if unknown:
            unknown[-1] += f" ({_IGNORE_UNKNOWN}=true ignores unknown names, as Apache Kafka does)"
        if unknown or wrong:
            raise ValueError("; ".join((*wrong, *unknown)))

    def _broker_config(self) -> BrokerConfig:
        self.topic_config()
        providers_of(self.static)
        values = {
            name: self._broker_value(name.replace("_", "."))
            for name in BrokerConfig.__dataclass_fields__
            if name not in _RESOLVED
        }
        values |= consumer_group_settings(values)
        values |= self._endpoints(dict(self._given()))
        share = values["log_cleaner_dedupe_buffer_size"] // max(1, values["log_cleaner_threads"])
        if share < _LEAST_KEY_MAP_BYTES:
            raise ValueError(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
            )
        longest_ms = self._broker_value("log.cleaner.max.compaction.lag.ms")
        if values["horolog_history_ms"] > longest_ms:
            raise ValueError(
                f"horolog.history.ms is {values['horolog_history_ms']}, and must not be above "
                f"log.cleaner.max.compaction.lag.ms ({longest_ms})"
            )
        values["log_dir"] = self._log_dir()
        values["super_users"] = _super_users(self._broker_value("super.users"))
        values["max_connections_per_ip_overrides"] = _connection_limits(
            self._broker_value("max.connections.per.ip.overrides") or ""
        )
        return BrokerConfig(**values)

    def _endpoints(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the listeners with their logins, limits and TLS, as fields of `BrokerConfig`.

        Args:
            given: all settings; those of the strongest layer win.
        """
        protocols = parse_protocols(self._broker_value("listener.security.protocol.map"))
        listeners, advertised = resolve_listeners(
            self._broker_value("listeners"),
            self._broker_value("advertised.listeners") or (),
            protocols,
            self._broker_value("controller.listener.names") or (),
        )
        protocol_of = {
            endpoint.name: protocols.get(endpoint.name, endpoint.name) for endpoint in listeners
        }
        mechanisms = self._broker_value(MECHANISMS)
        logins = {
            name: parse_login(name, given, mechanisms)
            for name, protocol in protocol_of.items()
            if protocol.startswith("SASL_")
        }
        limits = {name: self._limits(name) for name in protocol_of}
        between = self._inter_broker(given, protocols, listeners, advertised, logins)
        names = [name for name in broker_settings() if name.startswith(PREFIX)]
        tls = {
            name: parse_tls(of_listener(name, ""), names, given, asks_for_itself=name in logins)
            for name, protocol in protocol_of.items()
            if protocol.endswith("SSL")
        }
        is_https = self._broker_value("horolog.metrics.protocol") == "https"
        return {
            "listeners": listeners,
            "advertised_listeners": advertised,
            "logins": logins,
            "listener_limits": limits,
            "inter_broker_listener_name": between,
            "tls": tls,
            "metrics_tls": parse_metrics_tls(names, given) if is_https else None,
            "cluster": parse_cluster(self._broker_value, given, protocols, between, advertised),
        }

    def _limits(self, listener: str) -> ListenerLimits:
        limits = {
            field: self._broker_value(of_listener(listener, field.replace("_", ".")))
            for field in ListenerLimits._fields
        }
        return ListenerLimits(**limits)

    def _inter_broker(
        self,
        given: Mapping[str, str],
        protocols: Mapping[str, str],
        listeners: Sequence[Endpoint],
        advertised: Sequence[Endpoint],
        logins: Mapping[str, Login],
    ) -> str:
        """Return the listener between brokers, whose settings are checked where they are given."""
        controllers = {
            name.upper() for name in self._broker_value("controller.listener.names") or ()
        }
        known = controllers | {endpoint.name for endpoint in listeners}
        check_early(self._broker_value("early.start.listeners") or (), known)
        name = inter_broker_listener(given, protocols, advertised)
        login = logins.get(name)
        mechanism = self._broker_value(INTER_MECHANISM)
        is_given = not given.keys().isdisjoint((INTER_BROKER, INTER_PROTOCOL))
        if is_given and login is not None and mechanism.upper() not in login.mechanisms:
            raise ValueError(
                f"{INTER_MECHANISM} must be included in {MECHANISMS} when SASL is used for "
                f"inter-broker communication: it is {mechanism}, and the listener {name} enables "
                f"{', '.join(login.mechanisms)}"
            )
        return name

    def _log_dir(self) -> str:
        directories = self._broker_value("log.dirs") or self._broker_value("log.dir")
        if len(directories) != 1:
            raise ValueError(
                f"log.dirs={','.join(directories)}: only one directory is supported; "
                "run one broker for each, or join the disks below one file system"
            )
        return str(directories[0])


def _given_in(
    layer: Mapping[str, str], source: SettingSource, setting: Setting
) -> Iterator[tuple[Given, Value]]:
    for name in (setting.name, *setting.aliases):
        if name in layer:
            yield Given(source, name, layer[name]), setting.read(layer[name], name)


def _complaint(check: Callable[..., object], *arguments: str) -> str | None:
    """Return the message of the `ValueError` that a call raises, if any."""
    try:
        check(*arguments)
    except ValueError as cause:
        return str(cause)
    return None


def _in_ms(value: Value, name: str) -> Value:
    unit = _UNITS_MS.get(name.rpartition(".")[2], 1)
    return value * unit if isinstance(value, int) and unit > 1 and value > 0 else value


def _typed(field_name: str, value: Any) -> Any:
    if field_name == "message_timestamp_type":
        return (
            TimestampType.LOG_APPEND_TIME if value == "LogAppendTime" else TimestampType.CREATE_TIME
        )
    return frozenset(value) if field_name == "cleanup_policy" else value


def _super_users(text: str) -> frozenset[str]:
    """Return principals that semicolons part: names of certificates have commas."""
    users = frozenset(filter(None, (part.strip() for part in text.split(";"))))
    for user in users:
        if ":" not in user:
            raise ValueError(
                f"super.users={text}: {user} is no principal; write User:{user}, and a semicolon "
                "between several"
            )
    return users


def _connection_limits(text: str) -> dict[str, int]:
    """Return connection limits by IP address, in the spelling of `socket`."""
    limits = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = part.rpartition(":")
        try:
            if not (count.isascii() and count.isdigit()):
                raise ValueError(count)
            limits[str(ip_address(host.strip("[]")))] = int(count)
        except ValueError:
            raise ValueError(
                f"Invalid value {part} for configuration max.connections.per.ip.overrides: "
                "allowed is ADDRESS:COUNT with an IP address (host names are not resolved)"
            ) from None
    return limits
