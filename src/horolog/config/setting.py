"""Row of the settings tables: name, type, default, rule, description and status."""

from dataclasses import dataclass, field
from enum import Enum

from horolog.config.rules import ValueRule
from horolog.config.values import SettingKind, Value, parse
from horolog.security.stores import Hidden


class Status(Enum):
    """Effect of setting a value."""

    OBEYED = "obeyed"
    ACCEPTED = "accepted without effect"
    REFUSED = "refused"


class UpdateMode(Enum):
    """Scope in which a broker setting may change while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting under Kafka's name.

    Attributes:
        name: Kafka's name.
        kind: Kafka's type.
        default: The default as text; `None` if the setting has none.
        default_value: The default, parsed.
        rule: The allowed values beyond the type.
        doc: The purpose, in a sentence.
        status: Its effect here; `why` is the reason unless it is obeyed.
        update: How a broker setting may change; topic settings always may.
        falls_back_to: The broker settings that a topic setting falls back to, strongest first.
        aliases: Older names of the same setting, weaker than its own.
        internal: Kafka has it for its tests and never lists it.
        gone: Kafka 4 removed it; it is listed only where it is set.
        of_plugin: A class that Kafka loads has it; it is listed only where it is set, without its
            value.
    """

    name: str
    kind: SettingKind
    default: str | None
    rule: ValueRule | None
    doc: str
    status: Status
    why: str
    update: UpdateMode
    falls_back_to: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    internal: bool = False
    gone: bool = False
    of_plugin: bool = False
    default_value: Value | None = field(init=False)

    def __post_init__(self) -> None:
        value = parse(self.kind, self.default) if self.default is not None else None
        object.__setattr__(self, "default_value", value)

    @property
    def sensitive(self) -> bool:
        """True if the value is never shown."""
        return self.of_plugin or self.kind is SettingKind.PASSWORD

    @property
    def is_unlisted(self) -> bool:
        """True if it is listed only where it is set."""
        return self.internal or self.gone or self.of_plugin

    @property
    def allowed(self) -> str:
        """Description of the allowed values."""
        kind = self.kind.name.lower()
        article = "an" if kind == "int" else "a"
        return f"{article} {kind}" + (f", {self.rule.words}" if self.rule else "")

    def read(self, text: str, given_as: str | None = None) -> Value:
        """Parse `text`; `ValueError` names the setting, the value and the allowed values."""
        name = given_as or self.name
        try:
            value = parse(self.kind, text)
        except ValueError as cause:
            raise self._invalid(name, text, f"{cause}; ") from None
        if self.rule and not self.rule.accepts(value):
            raise self._invalid(name, text)
        unset = "" if self.default_value is None else self.default_value
        if self.status is Status.REFUSED and value != unset:
            raise ValueError(f"{name}={self._shown(text)} is refused: {self.why}")
        return value

    def _invalid(self, name: str, text: str, cause: str = "") -> ValueError:
        shown = self._shown(text)
        return ValueError(
            f"Invalid value {shown} for configuration {name}: {cause}allowed is {self.allowed}"
        )

    def _shown(self, text: str) -> str:
        is_secret = self.kind is SettingKind.PASSWORD or isinstance(text, Hidden)
        return "[hidden]" if is_secret else text
