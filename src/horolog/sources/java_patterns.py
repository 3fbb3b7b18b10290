r"""Java's regular expressions, as `subscribePattern` takes them, in Python's.

The two dialects look alike and differ where it hurts: `[a-z&&[^b]]`, `\p{Alpha}` or a
nested class mean something else in Python, or fail. What a topic's name can hold is
ASCII, without line breaks, so that character classes are worked out here as sets of
ASCII characters. What has no counterpart is refused, never taken for something else.

Source: `java.util.regex.Pattern` (Java 17), whose `matches()` Spark's Kafka source asks.
"""

import re
import string
from collections.abc import Mapping
from typing import NoReturn

_ASCII = frozenset(map(chr, range(128)))
_SPACE = frozenset(" \t\n\x0b\f\r")
_DIGIT = frozenset(string.digits)
_LOWER, _UPPER = frozenset(string.ascii_lowercase), frozenset(string.ascii_uppercase)
_ALPHA = _LOWER | _UPPER
_WORD = _ALPHA | _DIGIT | {"_"}
_PUNCTUATION = frozenset(string.punctuation)
_LINE_BREAK = frozenset("\n\x0b\f\r")
_CONTROL = frozenset(map(chr, [*range(32), 127]))

_Set = frozenset[str]

_CLASSES: Mapping[str, _Set] = {
    "d": _DIGIT,
    "D": _ASCII - _DIGIT,
    "s": _SPACE,
    "S": _ASCII - _SPACE,
    "w": _WORD,
    "W": _ASCII - _WORD,
    "h": frozenset(" \t"),
    "H": _ASCII - frozenset(" \t"),
    "v": _LINE_BREAK,
    "V": _ASCII - _LINE_BREAK,
}
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
# POSIX classes, java.lang.Character's, and the Unicode categories and scripts that ASCII has.
_PROPERTIES: Mapping[str, _Set] = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": _ASCII,
    "Alpha": _ALPHA,
    "Digit": _DIGIT,
    "Alnum": _ALPHA | _DIGIT,
    "Punct": _PUNCTUATION,
    "Graph": _ALPHA | _DIGIT | _PUNCTUATION,
    "Print": _ALPHA | _DIGIT | _PUNCTUATION | {" "},
    "Blank": frozenset(" \t"),
    "Cntrl": _CONTROL,
    "XDigit": frozenset(string.hexdigits),
    "Space": _SPACE,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "IsAlphabetic": _ALPHA,
    "IsLetter": _ALPHA,
    "IsLowercase": _LOWER,
    "IsUppercase": _UPPER,
    "IsDigit": _DIGIT,
    "IsLatin": _ALPHA,
    "InBasicLatin": _ASCII,
    "L": _ALPHA,
    "Lu": _UPPER,
    "Ll": _LOWER,
    "N": _DIGIT,
    "Nd": _DIGIT,
    "IsL": _ALPHA,
    "IsLu": _UPPER,
    "IsLl": _LOWER,
    "IsN": _DIGIT,
    "IsNd": _DIGIT,
}
_WITHOUT_EFFECT = frozenset("dmsuU")  # on names of ASCII without line breaks


class UntranslatableError(ValueError):
    """A pattern that Java refuses, or that has no counterpart; the reason is for its user."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Python's pattern that fully matches the same topics' names as Java's does.

    Raises:
        UntranslatableError: there is none.
    """
    translated = _Translator(pattern).whole()
    try:
        return re.compile(translated)
    except re.error as error:
        reason = f"Java would take it otherwise, or not at all ({error.msg})"
        raise UntranslatableError(reason) from None


class _Translator:
    """Reads a pattern once, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._ignores_case = False

    def whole(self) -> str:
        translated = self._alternatives()
        if self._at < len(self._text):
            self._refuse("a parenthesis that closes nothing")
        return translated

    # The text.

    def _peek(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _take(self, length: int = 1) -> str:
        taken = self._peek(length)
        if len(taken) < length:
            self._refuse("it ends too early")
        self._at += length
        return taken

    def _takes(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _up_to(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            self._refuse(f"there is no {end}")
        taken = self._text[self._at : found]
        self._at = found + len(end)
        return taken

    def _refuse(self, reason: str) -> NoReturn:
        raise UntranslatableError(f"{reason}, at position {self._at}")

    # Outside of character classes.

    def _alternatives(self) -> str:
        """Up to the end, or to the parenthesis that closes the group; flags end there, too."""
        outside = self._ignores_case
        parts: list[str] = []
        while self._at < len(self._text) and self._peek() != ")":
            parts.append("|" if self._takes("|") else self._repeated())
        self._ignores_case = outside
        return "".join(parts)

    def _repeated(self) -> str:
        if self._takes("\\Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at :] if end < 0 else self._up_to("\\E")
            self._at = len(self._text) if end < 0 else self._at
            return self._quoted(quoted)
        atom = self._atom()
        quantifier = self._quantifier()
        if atom == "" and quantifier:
            self._refuse("a quantifier of nothing")
        if quantifier and self._peek() and self._peek() in "*+?{":
            self._refuse("a quantifier of a quantifier")
        return f"{atom}{quantifier}"

    def _quoted(self, text: str) -> str:
        """A quotation; a quantifier behind it belongs to its last character."""
        quantifier = self._quantifier()
        if quantifier and (not text or self._peek() in tuple("*+?{")):
            self._refuse("a quantifier of nothing")
        characters = [self._literal(character) for character in text]
        return "".join(characters) + quantifier

    def _quantifier(self) -> str:
        if self._peek() == "{":
            found = re.compile(r"\{\d+(?:,\d*)?\}").match(self._text, self._at)
            if found is None:
                self._refuse("a brace that is no quantifier (write \\{ for itself)")
            count = self._take(len(found[0]))
        elif self._peek() and self._peek() in "?*+":
            count = self._take()
        else:
            return ""
        return count + (self._take() if self._peek() and self._peek() in "?+" else "")

    def _atom(self) -> str:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._of(self._class())
            case "\\":
                return self._escaped()
            case "." | "^" | "$":
                return character
            case "*" | "+" | "?":
                self._refuse(f"a quantifier of nothing, '{character}'")
            case "{":
                self._refuse("a brace that is no quantifier (write \\{ for itself)")
        return self._literal(character)

    def _group(self) -> str:
        outside = self._ignores_case
        start = "("
        if self._takes("?"):
            start = self._group_start()
            if start == "":
                return ""  # flags from here on
        inside = self._alternatives()
        self._ignores_case = outside
        if not self._takes(")"):
            self._refuse("a parenthesis that is not closed")
        return f"{start}{inside})"

    def _group_start(self) -> str:
        for start in (":", "=", "!", ">", "<=", "<!"):
            if self._takes(start):
                return f"(?{start}"
        if self._takes("<"):
            name = self._up_to(">")
            if not re.fullmatch("[a-zA-Z][a-zA-Z0-9]*", name):
                self._refuse(f"a group named '{name}'")
            return f"(?P<{name}>"
        found = re.compile("[a-zA-Z]*(?:-[a-zA-Z]*)?").match(self._text, self._at)
        on, _, off = self._take(len(found[0]) if found else 0).partition("-")
        ends = self._take()
        unknown = (set(on) | set(off)) - _WITHOUT_EFFECT - {"i"}
        if unknown or ends not in (")", ":") or not on + off:
            self._refuse(f"a group that starts with (?{on}{ends}")
        self._ignores_case = (self._ignores_case or "i" in on) and "i" not in off
        return "(?:" if ends == ":" else ""

    def _escaped(self) -> str:
        character = self._peek()
        if character in ("b", "B", "A"):
            self._take()
            if self._peek() == "{":
                self._refuse("a boundary of another kind than \\b")
            return f"\\{character}"
        if character in ("z", "Z"):
            self._take()
            return r"\Z"
        if character == "R":
            self._take()
            return self._of(_LINE_BREAK)
        if self._takes("k<"):
            return self._reference(f"(?P={self._up_to('>')})")
        if character and character in "123456789":
            self._take()
            if self._peek() and self._peek() in string.digits:
                self._refuse("a reference to a group of more than one digit")
            return self._reference(f"\\{character}")
        return self._of(found) if (found := self._set()) is not None else self._literal(self._one())

    def _reference(self, reference: str) -> str:
        return f"(?i:{reference})" if self._ignores_case else f"(?:{reference})"

    # Escapes that mean characters, here and in classes; the backslash has been taken.

    def _set(self) -> _Set | None:
        character = self._peek()
        if character in _CLASSES:
            return _CLASSES[self._take()]
        if character not in ("p", "P"):
            return None
        self._take()
        name = self._up_to("}") if self._takes("{") else self._take()
        if name not in _PROPERTIES:
            self._refuse(f"the property '{name}'")
        found = _PROPERTIES[name]
        if self._ignores_case and found & _ALPHA != self._in_case(found) & _ALPHA:
            self._refuse(f"the property '{name}' where case is ignored")
        return found if character == "p" else _ASCII - found

    def _one(self) -> str:
        character = self._take()
        if character in _CHARACTERS:
            return _CHARACTERS[character]
        match character:
            case "0":
                return chr(int(self._matching("[0-3][0-7]{0,2}|[0-7]{1,2}"), 8))
            case "x" if self._takes("{"):
                return self._code_point(self._up_to("}"))
            case "x":
                return self._code_point(self._matching("[0-9a-fA-F]{2}"))
            case "u":
                return self._code_point(self._matching("[0-9a-fA-F]{4}"))
            case "c":
                return chr(ord(self._take()) ^ 64)
        if character.isascii() and character.isalnum():
            self._refuse(f"\\{character}")
        return character

    def _matching(self, pattern: str) -> str:
        found = re.compile(pattern).match(self._text, self._at)
        if found is None:
            self._refuse("a number is missing")
        return self._take(len(found[0]))

    def _code_point(self, digits: str) -> str:
        if not re.fullmatch("[0-9a-fA-F]{1,6}", digits) or int(digits, 16) > 0x10FFFF:
            self._refuse(f"a character numbered '{digits}'")
        return chr(int(digits, 16))

    # Character classes, as the ASCII characters that are in them.

    def _class(self) -> _Set:
        """From behind the bracket that opens a class to behind the one that closes it."""
        is_negated = self._takes("^")
        found = self._union(is_first=True)
        while self._takes("&&"):
            found &= self._union(is_first=False)
        if not self._takes("]"):
            self._refuse("a class that is not closed")
        return _ASCII - found if is_negated else found

    def _union(self, *, is_first: bool) -> _Set:
        found: set[str] = set()
        is_empty = True
        while True:
            if self._peek() == "" or (self._peek() == "]" and not (is_empty and is_first)):
                break
            if self._peek(2) == "&&":
                break
            is_empty = False
            found |= self._member()
        if is_empty:
            self._refuse("a class, or a part of one, that holds nothing")
        return frozenset(found)

    def _member(self) -> _Set:
        if self._takes("["):
            return self._class()
        if self._takes("\\Q"):
            return self._in_case(frozenset(self._up_to("\\E")))
        if self._takes("\\"):
            found = self._set()
            if found is not None:
                return found
            first = self._one()
        else:
            first = self._take()
        if self._peek() != "-" or self._peek(2) in ("-]", "-"):
            return self._in_case(frozenset(first))
        self._take()
        if self._peek() == "[" or self._peek(2) == "&&" or self._peek(2) == "\\Q":
            self._refuse("a range that ends in a class")
        if self._takes("\\"):
            if self._set() is not None:
                self._refuse("a range that ends in a class")
            last = self._one()
        else:
            last = self._take()
        if last < first:
            self._refuse(f"a range from '{first}' to '{last}'")
        return self._in_case(frozenset(each for each in _ASCII if first <= each <= last))

    # Python's words for it.

    def _in_case(self, characters: _Set) -> _Set:
        if not self._ignores_case:
            return characters
        return characters | {each.swapcase() for each in characters if each in _ALPHA}

    def _literal(self, character: str) -> str:
        if self._ignores_case and character in _ALPHA:
            return self._of(self._in_case(frozenset(character)))
        return re.escape(character)

    def _of(self, characters: _Set) -> str:
        """One character of a set; names hold no others than ASCII."""
        inside = "".join(f"\\x{ord(each):02x}" for each in sorted(characters & _ASCII))
        return f"[{inside}]" if inside else "(?!)"
