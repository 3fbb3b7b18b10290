r"""Java's regular expressions, as `subscribePattern` takes them, by the library `regex`.

The library has Java's sets (`[a-z&&[^b]]`), flags within patterns, possessive repetition and
look-around. What it reads in another way than Java, or what only one of the two has, is refused,
never taken for something else. As in Java a match can take exponential time. So it has a limit,
and runs where the user's own Spark does, never in a broker.

Source: `java.util.regex.Pattern` (Java 17), whose `matches()` Spark's Kafka source asks.
"""

from collections.abc import Callable
from typing import Final

from horolog.errors import Misconfigured
from horolog.extras import missing_extra

LONGEST_S: Final = 1.0
"""Seconds that a match of one name may take."""

# What both read alike: escapes, groups, repetition, sets, and other characters.
_ALIKE: Final = r"""(?x)(?:
    (?P<escape>\\(?:[^0-9A-Za-z]|[AdDsSwWhRtnrfaZz]|[bB](?!\{)|[1-9](?![0-9])|x[0-9A-Fa-f]{2}
        |u[0-9A-Fa-f]{4}|[pP](?:\{\w+\}|[A-Z])))
    |\((?![?*])|\(\?(?:[:=!>]|<[=!]|<[A-Za-z][A-Za-z0-9]*>|[ims]*(?:-[ims]+)?(?::|\)(?![?*+{])))
    |\{\d+(?:,\d*)?\}
    |(?P<set>\[\^?\]?(?:(?!\\[1-9])(?P>escape)|(?!\[:)(?P>set)|(?!\|\||--|~~|-\[)[^\\\[\]])*+\])
    |[^\\(\[{]
)*+"""

_QUOTED: Final = r"(?s)(?<!\\)(?:\\\\)*+\K\\Q(.*?)(?:\\E|\Z)"  # whatever Java takes as it is


class UnlikeJavaError(ValueError):
    """A pattern that Java refuses or reads differently; the reason is for its user."""


def java_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches a topic's whole name as Java does.

    That raises Misconfigured for a name that takes too long.

    Raises:
        UnlikeJavaError: the pattern is none, or would be read in another way.
        MissingExtra: the library is not installed.
    """
    try:
        import regex  # noqa: PLC0415 - of the extra `spark`
    except ImportError as error:
        raise missing_extra(error, "subscribePattern", "spark") or error from error
    quoted = regex.sub(_QUOTED, lambda found: regex.escape(found[1]), pattern)
    alike = regex.match(_ALIKE, quoted).end()
    if alike < len(quoted):
        raise UnlikeJavaError(f"at {quoted[alike:]!r:.40}, which Java reads otherwise or refuses")
    try:
        compiled = regex.compile(quoted, regex.VERSION1 | regex.ASCII)
    except (regex.error, ValueError) as error:
        raise UnlikeJavaError(str(error)) from None

    def matches(name: str) -> bool:
        try:
            return compiled.fullmatch(name, timeout=LONGEST_S) is not None
        except TimeoutError:
            raise Misconfigured(
                f"subscribePattern={pattern:.80} takes longer than {LONGEST_S} s for the topic "
                f"{name:.80}: give a simpler one, or a topicsPattern, which takes linear time"
            ) from None

    return matches
