"""Names of certificates, and principals made of them (`ssl.principal.mapping.rules`).

A name is written exactly as Java writes it (`X500Principal.getName()`, RFC 2253), because rights
and super users name it so:

    CN=alice,OU=b + CN=a,C=DE       the most special part first

Rules are Kafka's: `RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas. The first
whose pattern is the whole name makes the principal. Empty ones are passed over.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from horolog.errors import Misconfigured
from horolog.patterns import Groups, NamePattern

__all__ = ["MappingRule", "alternative_names", "map_name", "parse_rules", "subject_name"]

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_OID, _VERSION, _EXTENSIONS = 0x06, 0xA0, 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
# Printable, T61, IA5, General, BMP and UTF8 strings: Java reads all of them as UTF-8.
_STRINGS: Final = frozenset({0x13, 0x14, 0x16, 0x1B, 0x1E, 0x0C})
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')


def subject_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER.

    Raises:
        ValueError: it is no certificate.
    """
    parts = [_relative(part) for _, part, _ in der_elements(_fields(certificate)[4][1])]
    return ",".join(reversed(parts))


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Return the alternative names of a certificate's subject, in DER.

    Raises:
        ValueError: it is no certificate.
    """
    for tag, content, _ in _fields(certificate):
        if tag != _EXTENSIONS:
            continue
        ((_, extensions, _),) = der_elements(content)
        for _, extension, _ in der_elements(extensions):
            (_, oid, _), *_, (_, value, _) = der_elements(extension)
            if _dotted(oid) == _ALTERNATIVE_NAMES:
                ((_, names, _),) = der_elements(value)
                return frozenset(whole for _, _, whole in der_elements(names))
    return frozenset()


def _fields(certificate: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the signed fields of a certificate from its serial number on."""
    ((_, body, _),) = der_elements(certificate)
    (_, signed, _), *_ = der_elements(body)
    fields = [field for field in der_elements(signed) if field[0] != _VERSION]
    if len(fields) < 5:
        raise ValueError("no subject")
    return fields


def _relative(part: bytes) -> str:
    return "+".join(_attribute(attribute) for _, attribute, _ in der_elements(part))


def _attribute(attribute: bytes) -> str:
    (kind, oid, _), (tag, value, whole) = der_elements(attribute)
    if kind != _OID:
        raise ValueError("no attribute")
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or dotted}=#{whole.hex()}"
    text = _ESCAPED.sub(r"\\\g<0>", value.decode("utf-8", "replace")).replace("\0", "\\00")
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    around = text[:lead], text[lead + len(inner) :]
    before, after = ("".join(f"\\{space}" for space in spaces) for spaces in around)
    return f"{keyword}={before}{inner}{after}"


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("no object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def der_elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, content and the whole of each element of DER."""
    position = 0
    while position < len(data):
        begin = position
        header = data[position : position + 2]
        if len(header) < 2:
            raise ValueError("cut short")
        tag, size = header
        position += 2
        if size >= 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or position + count > len(data):
                raise ValueError("no length")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + size
        if end > len(data):
            raise ValueError("cut short")
        yield tag, data[position:end], data[begin:end]
        position = end


class MappingRule(NamedTuple):
    """Rule that makes a principal's name of a certificate's; None as pattern leaves it as it is."""

    pattern: "re.Pattern[str] | None" = None
    replacement: str = ""
    case: str = ""
    """L for lower case, U for upper case."""
    linear: NamePattern | None = None
    """The same pattern for an engine that takes linear time; None if it does not have all of it."""

    def make(self, name: str) -> str | None:
        """Return what the rule makes of a name; None if it does not fit.

        Clients may choose much of their names, and Python's engine stops the whole process.

        Raises:
            ValueError: the name is too long for the pattern.
        """
        if self.pattern is None:
            return name
        if self.linear is not None and "\n" not in name:  # before which `$` fits for Java
            fits, replaced = self.linear.matches(name), self.linear.replaced
        elif len(name) > _LONGEST_NAME:
            raise ValueError(f"its name has more than {_LONGEST_NAME} characters")
        else:
            fits, replaced = bool(self.pattern.fullmatch(name)), self._replaced
        if not fits:
            return None
        made = replaced(name, lambda groups: _expanded(groups, self.replacement))
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made

    def _replaced(self, name: str, replace: Callable[[Groups], str]) -> str:
        assert self.pattern is not None
        return self.pattern.sub(lambda match: replace(_groups(match)), name)


_SETTING: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/"
    r"(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)|)\s*(?:,|$)"
)
_REPLACED: Final = re.compile(r"\\(?P<literal>.)|\$(?P<number>\d+)|\$\{(?P<name>\w+)\}", re.DOTALL)
_REFERENCE: Final = re.compile(
    r"\\.|(?P<any>\$(?:(?P<number>\d+)|\{(?P<name>\w+)\}|.?))", re.DOTALL
)
_TOKEN: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|\.|\(\?<(?=[A-Za-z])|\(\?[a-z]*s[a-z]*(?=[:)])", re.DOTALL
)
_ANY: Final = "[^\n\r\x85\u2028\u2029]"  # a dot of Java
_UNLIKE_RE2: Final = re.compile(r"\(\?(?!:|P<)|\\[sS]|\{,")
"""Begins of what means something else for RE2: flags, blanks, a repetition without a least."""
_LONGEST_NAME: Final = 512
"""Most characters of a name for Python's engine: what Kafka's own example takes for it is a fifth
of a second for the worst name."""
_UNLIKE_JAVA: Final = {r"\v", r"\0"}


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Read the rules of `ssl.principal.mapping.rules`.

    Raises:
        Misconfigured: one is malformed, or its pattern is not one that is supported.
    """
    rules, position = [], 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise Misconfigured(
                f"{_SETTING} cannot be read at {text[position:]!r}: rules are DEFAULT and "
                "RULE:pattern/replacement/ with L or U behind, separated by commas"
            )
        position = match.end()
        if match["default"]:
            rules.append(MappingRule())
        elif match["pattern"] is not None:
            pattern, replacement = _java(match["pattern"]), match["replacement"]
            _check_replacement(pattern, replacement)
            rules.append(MappingRule(pattern, replacement, match["case"], _linear(pattern)))
    return tuple(rules)


def _java(pattern: str) -> "re.Pattern[str]":
    """Compile a pattern in Java's grammar."""
    try:
        with warnings.catch_warnings():
            # `[a||b]` means these characters in Java, and still in each Python that is promised.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(_TOKEN.sub(_of_java, pattern), re.ASCII)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise Misconfigured(f"{_SETTING}: the pattern {pattern!r} is refused: {error}") from None


def _linear(pattern: "re.Pattern[str]") -> NamePattern | None:
    """Return a pattern for the engine that takes linear time, unless it has not all of it."""
    if _UNLIKE_RE2.search(pattern.pattern):
        return None
    try:
        return NamePattern(pattern.pattern, captures=True)
    except ValueError:
        return None


def _of_java(match: "re.Match[str]") -> str:
    """Return a part of a pattern of Java as Python writes it.

    Raises:
        ValueError: it means something else in Python.
    """
    part = match[0]
    if part.startswith("["):
        inner = re.sub(r"\\.", "", part[1:], flags=re.DOTALL)
        if "[" in inner or "&&" in inner:
            raise ValueError("brackets within brackets and && are not supported")
    elif part in _UNLIKE_JAVA:
        raise ValueError(f"{part} is not supported")
    elif part.startswith("(?") and part != "(?<":
        raise ValueError("the flag s is not supported; write [\\s\\S] for any character")
    return {".": _ANY, "(?<": "(?P<"}.get(part, part)


def _check_replacement(pattern: "re.Pattern[str]", replacement: str) -> None:
    """Refuse a replacement with which Kafka would refuse each certificate.

    A group beyond those of the pattern stands for itself, unless the pattern has none.
    """
    for found in _REFERENCE.finditer(replacement):
        number, name = found["number"], found["name"]
        is_known = name in pattern.groupindex if number is None else pattern.groups > 0
        if found["any"] and not is_known and (number is None or number.strip("0")):
            raise Misconfigured(
                f"{_SETTING}: the replacement {replacement!r} has {found['any']!r}, and the "
                "pattern has no such group; write \\$ for the character"
            )


def map_name(rules: tuple[MappingRule, ...], name: str) -> str | None:
    """Return what the rules make of a name; None if none of them fits.

    Raises:
        ValueError: the name is too long for a pattern.
    """
    return next((made for rule in rules if (made := rule.make(name)) is not None), None)


def _groups(match: "re.Match[str]") -> Groups:
    found = [match[0], *match.groups(default="")]
    return dict(enumerate(found)) | match.groupdict(default="")


def _expanded(groups: Groups, replacement: str) -> str:
    """Return the replacement with the groups of a match; a group that is none stays as it is."""

    def part(found: "re.Match[str]") -> str:
        if (literal := found["literal"]) is not None:
            return literal
        if (name := found["name"]) is not None:
            return groups.get(name, found[0])
        digits = found["number"]
        for end in range(len(digits), 0, -1):  # $12 is $1 and a 2 where there are fewer groups
            if int(digits[:end]) in groups:
                return groups[int(digits[:end])] + digits[end:]
        return found[0]

    return _REPLACED.sub(part, replacement)
