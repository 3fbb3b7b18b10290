"""Errors between a client and a broker that requires security."""

from horolog.errors import HorologError


class AuthenticationFailed(HorologError):
    """Raised if broker and client do not accept each other. Another attempt would fail too."""


class NoToken(AuthenticationFailed):
    """Raised if no bearer token is available. The text contains no secret."""
