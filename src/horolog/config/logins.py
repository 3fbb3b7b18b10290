"""Logins of listeners: mechanisms, and the users of PLAIN. Those of SCRAM are in the metadata log.

Tokens (OAUTHBEARER) have settings of their own (`tokens`).

sasl.enabled.mechanisms=PLAIN                            of all listeners
listener.name.NAME.sasl.enabled.mechanisms=PLAIN         of one, its name in lower case
connections.max.reauth.ms=3600000                        also of a listener, or its mechanism
listener.name.NAME.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.\
PlainLoginModule required user_alice="password";
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from horolog.config.listeners import of_listener
from horolog.config.tokens import OAUTHBEARER, TokenSettings, parse_tokens
from horolog.errors import Misconfigured
from horolog.security.jaas import parse_jaas

SERVED_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
JAAS: Final = "sasl.jaas.config"
MECHANISMS: Final = "sasl.enabled.mechanisms"
LIFETIME: Final = "connections.max.reauth.ms"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_MODULES: Final = {"PLAIN": _PLAIN, OAUTHBEARER: _TOKENS}
_USER: Final = "user_"


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """How clients log in on a listener. Its `repr` has no password."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str]
    """Passwords by name."""
    lifetimes_ms: Mapping[str, int]
    """How long a login lasts, by mechanism, in milliseconds; 0: as long as the connection."""
    tokens: TokenSettings | None
    """How tokens are checked; None if OAUTHBEARER is not enabled."""

    @property
    def has_scram(self) -> bool:
        """True if users of the metadata log can log in."""
        return any(mechanism.startswith("SCRAM-") for mechanism in self.mechanisms)


def parse_login(listener: str, given: Mapping[str, str], of_all: Sequence[str]) -> Login:
    """Return the login of a listener.

    Args:
        given: all settings of the broker.
        of_all: mechanisms that are enabled where a listener has none of its own.

    Raises:
        ValueError: a mechanism is not served, or its users are not given.
    """
    own = given.get(of_listener(listener, MECHANISMS))
    mechanisms = of_all if own is None else filter(None, map(str.strip, own.split(",")))
    enabled = tuple(mechanism.upper() for mechanism in mechanisms)
    others = [mechanism for mechanism in enabled if mechanism not in SERVED_MECHANISMS]
    if others or not enabled:
        raise ValueError(
            f"the listener {listener} enables {', '.join(others) or 'no mechanism'}; served here "
            f"are {', '.join(SERVED_MECHANISMS)}. Add the line "
            f"{of_listener(listener, MECHANISMS)}=SCRAM-SHA-512"
        )
    options = {mechanism: _options(listener, mechanism, given) for mechanism in enabled}
    users = {
        option.removeprefix(_USER): password
        for option, password in options.get("PLAIN", {}).items()
        if option.startswith(_USER)
    }
    tokens = parse_tokens(listener, given, options[OAUTHBEARER]) if OAUTHBEARER in options else None
    lifetimes_ms = {
        mechanism: _lifetime_ms(listener, mechanism, given) for mechanism in SERVED_MECHANISMS
    }
    return Login(enabled, users, lifetimes_ms, tokens)


def _lifetime_ms(listener: str, mechanism: str, given: Mapping[str, str]) -> int:
    """Return how long a login lasts: the mechanism's setting, the listener's, or that of all."""
    names = of_listener(listener, LIFETIME, mechanism), of_listener(listener, LIFETIME), LIFETIME
    return max(0, int(next(filter(None, map(given.get, names)), "0")))


def _options(listener: str, mechanism: str, given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of a mechanism's login module; only PLAIN has to have one."""
    name = of_listener(listener, JAAS, mechanism)
    jaas = given.get(name)
    wanted = _MODULES.get(mechanism, _SCRAM)
    if not jaas and mechanism != "PLAIN":
        return {}
    if not jaas:
        raise ValueError(
            f"the listener {listener} has no users of PLAIN. Add the line {name}={_PLAIN} "
            'required user_NAME="PASSWORD";'
        )
    try:
        module = parse_jaas(jaas)
    except Misconfigured as error:
        raise ValueError(f"{name}: {error}") from None
    if module.name != wanted:
        raise ValueError(f"{name} names the login module {module.name}; it has to be {wanted}")
    return module.options
