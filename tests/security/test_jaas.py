"""`sasl.jaas.config` as Java reads it."""

import pytest

from horolog.errors import Misconfigured
from horolog.security import parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.B required;", {}),
        ('a.B required username="u" password="p";', {"username": "u", "password": "p"}),
        ("a.B REQUIRED\n  username='u'\n  password=p ;\n", {"username": "u", "password": "p"}),
        ('a.B required x="a;b=c" y="say \\"hi\\"\\\\";', {"x": "a;b=c", "y": 'say "hi"\\'}),
        ('/* who */ a.B optional // how\n x="1";', {"x": "1"}),
        ('a.B required x = "";', {"x": ""}),
        ('a.B required "x"="http://h/t";', {"x": "http://h/t"}),
    ],
)
def test_a_login_module_is_read(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.options) == ("a.B", options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no login module"),
        (";", "names no login module"),
        ("a.B;", "after the login module"),
        ('a.B username="hush";', "after the login module"),
        ('a.B required password="hush"', "does not end with a semicolon"),
        ('a.B required password="hush;', "quotation mark"),
        ('a.B required "hush";', "options are written"),
        ("a.B required password=;", "options are written"),
        ("a.B required; c.D required;", "more than one"),
    ],
)
def test_what_is_no_login_module_is_refused_without_its_secrets(text: str, said: str) -> None:
    with pytest.raises(Misconfigured, match=said) as refused:
        parse_jaas(text)
    assert "hush" not in str(refused.value)


def test_option_values_are_in_no_repr() -> None:
    assert "hush" not in repr(parse_jaas('a.B required password="hush";'))
