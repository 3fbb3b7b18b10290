"""What others have written does nothing to a terminal, and shows no credentials."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_runner import Run
from running_broker import RunningBroker

from horolog.client import Client, CommittedOffset
from horolog.errors import Misconfigured, escaped, printable, without_credentials

HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
GROUPS = ["\x1b[2J\x1b]0;owned\x07", "line\nbreak", "\x9b31m", "\u202eevil", "nul\0x", "\x85x"]
SECRET = "wJalr/K7MDENG+bPx"
URIS = [
    f"s3://AKIAX:{SECRET}@bucket/path",
    f"s3a://AKIAX:{SECRET}@",
    f"gs://{SECRET}:x@b/p",
    f"hdfs://user:{SECRET}@127.0.0.1:1/x",
    f"s3://bucket/path?access_key=AK&secret_key={SECRET}&region=x",
    f"abfss://c@a.dfs.core.windows.net/p?sig={SECRET}",
    f"s3://AKIAX%3A{SECRET}@bucket/x?scheme=http",
]


def run(source: str) -> subprocess.CompletedProcess[str]:
    source = f"from horolog.cli.screen import *; from horolog.cli.terminal import *; {source}"
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, encoding="utf-8", check=True
    )


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("call", ["echo(f'group {it}')", "say(it)", "show_table(['g'], [[it]])"])
def test_text_of_others_is_one_line_without_control_characters(call: str, name: str) -> None:
    ran = run(f"it = {name!r}; {call}")
    printed = (ran.stdout + ran.stderr).removesuffix("\n")
    assert HARMFUL.search(printed) is None
    assert printed.splitlines()[-1].endswith(escaped(name).split()[-1])
    assert len(printed.splitlines()) == (3 if "table" in call else 1)


@pytest.mark.parametrize("name", GROUPS)
def test_json_is_what_it_was_and_has_no_control_characters(name: str) -> None:
    printed = run(f"show({{'g': {name!r}, 'emoji': '\U0001f600'}}, (), as_json=True)").stdout
    assert HARMFUL.search(printed.removesuffix("\n")) is None
    assert json.loads(printed) == {"g": name, "emoji": "\U0001f600"}


@pytest.mark.parametrize(
    "command",
    [
        ("lag", "--all-groups"),
        ("lag", "--all-groups", "--json"),
        ("health",),
        ("groups", "history"),
    ],
)
def test_group_ids_that_clients_choose_do_not_reach_the_terminal(
    horolog: Run, broker: RunningBroker, command: tuple[str, ...]
) -> None:
    topic = "seen-by-many"
    with Client(broker.address) as client:
        if topic not in client.metadata().topics:
            client.create_topics({topic: 1})
        for group in GROUPS:
            client.offset_commit(group, {(topic, 0): CommittedOffset(0)})
    given = [*command, *([GROUPS[0]] if command[0] == "groups" else [])]
    ran = horolog(*given)
    assert HARMFUL.search(ran.out + ran.err) is None
    assert "line\nbreak" not in ran.out


def test_records_are_shown_without_control_characters(horolog: Run, broker: RunningBroker) -> None:
    with Client(broker.address) as client:
        client.create_topics({"wild": 1})
    horolog("produce", "wild", stdin=b"\x1b[2Jvalue\xc2\x9b\n")
    for shape in ("text", "json"):
        printed = horolog("consume", "wild", "--from-beginning", "--format", shape).out
        assert HARMFUL.search(printed) is None
        assert "value" in printed


def test_records_keep_the_characters_of_their_texts(horolog: Run, broker: RunningBroker) -> None:
    text = "\u4e16\u3000\u754c 1\u00a0km \u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f4bb"
    with Client(broker.address) as client:
        client.create_topics({"texts": 1})
    horolog("produce", "texts", stdin=f"{text}\u202e\n".encode())
    printed = horolog("consume", "texts", "--from-beginning").out
    assert printed.rstrip("\n").endswith(f"\t{text}\\u202e")


@pytest.mark.parametrize("uri", URIS)
def test_no_credentials_of_a_uri_are_in_a_text(uri: str) -> None:
    for text in (uri, f"there is no {uri}", f"'{uri}' is none, nor '{uri}'", str(Path(uri))):
        assert SECRET not in without_credentials(text)
        assert SECRET not in printable(text)
        assert SECRET not in str(Misconfigured(text))
        assert SECRET not in run(f"echo({text!r})").stdout


def test_what_is_no_secret_stays_in_a_uri() -> None:
    for text in (
        "abfss://logs@account.dfs.core.windows.net/x",
        "s3://bucket/a@b?region=x&endpoint_override=127.0.0.1:1",
        "file:///data/a:b, at 10:30",
        "me@example.org",
    ):
        assert printable(text) == text


def test_a_long_hostile_text_is_looked_at_once() -> None:
    for text in ("a:/" + ":@" * 50_000, "?key" * 50_000 + "a:/", "a:/?&" * 50_000):
        without_credentials(text)


@pytest.mark.parametrize(
    "command", [("log", "inspect"), ("retention", "explain"), ("log", "verify"), ("lag", "--nope")]
)
def test_no_credentials_are_in_what_a_command_refuses(
    offline: Run, command: tuple[str, ...]
) -> None:
    for uri in URIS[:2]:
        refused = offline(*command, uri)
        assert refused.code == 2
        assert SECRET not in (refused.out + refused.err).replace("\n", "")
