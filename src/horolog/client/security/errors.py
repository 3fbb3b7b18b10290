"""What can go wrong between a client and a broker that requires security."""

from horolog.errors import HorologError

__all__ = ["AuthenticationFailed", "NoToken"]


class AuthenticationFailed(HorologError):
    """A broker and this client do not accept each other; another attempt would end alike."""


class NoToken(AuthenticationFailed):
    """There is no bearer token; says why, without what was sent for it."""
