"""`sasl.jaas.config`: the login module of Kafka's SASL clients and its options.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";

The grammar is that of Java's JAAS files, for one login module (KIP-85).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from horolog.errors import Misconfigured

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/                     # nothing
    |   "(?P<double>(?:[^"\\]|\\.)*)"
    |   '(?P<single>(?:[^'\\]|\\.)*)'
    |   (?P<mark>[=;])
    |   (?P<word>[^\s=;"']+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """Login module and its options. The `repr` shows no option values."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, options={sorted(self.options)})"


def parse_jaas(text: str) -> LoginModule:
    """Read the value of `sasl.jaas.config`.

    Raises:
        Misconfigured: the text is not one login module with options. Option values are not
            repeated.
    """
    tokens = _tokens(text)
    if len(tokens) < 2 or tokens[0] == _MARK_END:
        raise _malformed("it names no login module")
    name, flag = tokens[0][1], tokens[1][1]
    if flag.lower() not in _FLAGS:
        raise _malformed("after the login module comes one of " + ", ".join(sorted(_FLAGS)))
    options = {}
    rest = tokens[2:]
    while rest and rest[0] != _MARK_END:
        if len(rest) < 3 or rest[0][0] == "mark" or rest[1] != _MARK_IS or rest[2][0] == "mark":
            raise _malformed('options are written name="value"')
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    if not rest:
        raise _malformed("it does not end with a semicolon")
    if len(rest) > 1:
        raise _malformed("it names more than one login module")
    return LoginModule(name, options)


_MARK_END: Final = ("mark", ";")
_MARK_IS: Final = ("mark", "=")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed("a quotation mark is not closed")
        position = match.end()
        match match.lastgroup:
            case "double" | "single" as kind:
                text_of = _ESCAPED.sub(lambda it: _ESCAPES.get(it[1], it[1]), match[kind])
                tokens.append(("word", text_of))
            case str() as kind:
                tokens.append((kind, match[kind]))
    return tokens


def _malformed(why: str) -> Misconfigured:
    return Misconfigured(
        f"sasl.jaas.config cannot be read: {why}; expected e.g. org.apache.kafka.common.security."
        'plain.PlainLoginModule required username="..." password="...";'
    )
