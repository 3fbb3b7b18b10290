"""Logins by PLAIN whose names and passwords are odd."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.security import LoginFailed, PlainLogin

ODD = st.text(max_size=5) | st.sampled_from(["\ud800", "a\udfff", "\ufffd", "\0"])


@given(st.dictionaries(ODD, ODD), st.binary(max_size=20) | st.text(max_size=9).map(str.encode))
def test_whatever_is_sent_is_a_login_or_refused(users: dict[str, str], message: bytes) -> None:
    login = PlainLogin(users)
    try:
        assert login.answer(message) == b""
    except LoginFailed:
        assert login.name is None
    else:
        assert login.name in users


@pytest.mark.parametrize("password", ["\ud800", "a\udfff"])
def test_a_password_that_no_client_can_send_logs_nobody_in(password: str) -> None:
    for sent in (password.encode(errors="surrogatepass"), b"x"):
        with pytest.raises(LoginFailed):
            PlainLogin({"odd": password}).answer(b"\0odd\0" + sent)
