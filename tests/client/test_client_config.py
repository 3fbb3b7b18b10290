"""Addresses and settings of a client."""

import pickle
import subprocess
import sys

import pytest

from horolog.client import Address, Client, ClientConfig, parse_bootstrap_servers
from horolog.errors import Misconfigured


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        (" a:1 , b:65535,", [("a", 1), ("b", 65535)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://a:9092,PLAINTEXT://[fe80::1]:9093", [("a", 9092), ("fe80::1", 9093)]),
    ],
)
def test_bootstrap_servers_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap_servers(text)) == addresses


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "bootstrap.servers is empty"),
        (" , ", "bootstrap.servers is empty"),
        ("localhost", "write host:port"),
        (":9092", "write host:port"),
        ("::1:9092", r"\[::1\]:9092"),
        ("localhost:kafka", "port must be a number"),
        ("localhost:0", "port must be a number from 1 to 65535"),
        ("localhost:65536", "port must be a number"),
        ("localhost:-1", "port must be a number"),
        ("localhost:٣", "port must be a number"),
    ],
)
def test_what_is_no_address_is_refused_with_what_is(text: str, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        Client(text)


def test_a_timeout_of_nothing_is_refused() -> None:
    with pytest.raises(Misconfigured, match="timeout_ms=0: must be greater than 0"):
        Client("localhost:9092", timeout_ms=0)


def test_a_client_is_pickled_as_its_configuration() -> None:
    client = Client("localhost:9092", client_id="task", timeout_ms=7)
    copy = pickle.loads(pickle.dumps(client))
    assert isinstance(copy, Client)
    assert (
        copy.config
        == client.config
        == ClientConfig(bootstrap_servers="localhost:9092", client_id="task", timeout_ms=7)
    )


def test_an_ipv6_address_is_written_with_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_the_client_imports_neither_arrow_nor_tls_before_they_are_needed() -> None:
    code = (
        "import sys, horolog.client; print([m for m in ('pyarrow', 'ssl', 'numpy') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
