"""Claims of a token that a broker asks for, by the rules of Apache Kafka's BrokerJwtValidator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from horolog.errors import HorologError

__all__ = ["BadToken", "TokenOwner", "TokenRules", "UnknownKey"]

_LATEST_S: Final = (1 << 63) // 10**9
"""The year 2262: Apache Kafka counts to the end of a session in nanoseconds."""
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


class BadToken(HorologError):
    """Raised if a token proves nothing. The message continues "the token", without the token."""


class UnknownKey(HorologError):
    """Raised if a token is signed with a key that the broker does not know yet."""


class TokenOwner(NamedTuple):
    """Name in a token, and the end of the token in milliseconds since the epoch."""

    name: str
    ends_ms: int


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Claims that a token must have."""

    issuer: str | None
    """None: any issuer, or none."""
    audiences: frozenset[str]
    """One of these must be among a token's; empty: any audience, or none."""
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: int = 30
    """Difference between the clocks of issuer and broker that is allowed for."""

    def owner(self, claims: Mapping[str, Any], now_ms: int) -> TokenOwner:
        """Return the owner of a token whose signature was checked.

        Raises:
            BadToken: it is over, not yet valid, for others, or names nobody.
        """
        ends_s = self._check_times(claims, now_ms // 1000)
        for name in ("sub", "jti", "iss"):
            _text(claims, name)
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise BadToken("has another issuer (iss)")
        if self.audiences and self.audiences.isdisjoint(_audiences(claims)):
            raise BadToken("is for another audience (aud)")
        _check_scopes(claims.get(self.scope_claim))
        name = (_text(claims, self.subject_claim) or "").strip(_JAVA_BLANKS)
        if not name:
            raise BadToken(f"names no user ({self.subject_claim})")
        return TokenOwner(name, 1000 * ends_s)

    def _check_times(self, claims: Mapping[str, Any], now_s: int) -> int:
        """Return the end of the token in seconds."""
        ends_s, issued_s = _seconds(claims, "exp"), _seconds(claims, "iat")
        begins_s = _seconds(claims, "nbf")
        if ends_s is None or issued_s is None:
            raise BadToken("has no time of its end (exp) or of its issue (iat)")
        if not 0 <= ends_s <= _LATEST_S or not 0 <= issued_s <= _LATEST_S:
            raise BadToken("has a time beyond what can be (exp, iat)")
        if now_s - self.skew_s >= ends_s:
            raise BadToken("has expired (exp)")
        if ends_s < issued_s or (begins_s is not None and ends_s < begins_s):
            raise BadToken("ends before it begins (exp, iat, nbf)")
        if begins_s is not None and now_s + self.skew_s < begins_s:
            raise BadToken("is not valid yet (nbf)")
        return ends_s


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """Return a time in whole seconds; None if there is none."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadToken(f"has a {name} that is no number")
    return int(value)


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not isinstance(value, str):
        raise BadToken(f"has a {name} that is no text")
    return value


def _audiences(claims: Mapping[str, Any]) -> list[str]:
    value = claims.get("aud")
    audiences = [value] if isinstance(value, str) else value
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise BadToken("has no audience (aud) that is text, or a list of texts")
    return audiences


def _check_scopes(value: Any) -> None:
    """Refuse scopes that are blank or named twice; nothing else depends on them."""
    scopes = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    named = [one.strip(_JAVA_BLANKS) if isinstance(one, str) else "" for one in scopes]
    if not all(named) or len(set(named)) < len(named):
        raise BadToken("has a scope that is blank, no text, or named twice")
