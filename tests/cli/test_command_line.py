"""The command as a whole: quick, and never with a traceback."""

import re
import socket
import subprocess
import sys

import pytest
from command_runner import Run, run_command

from horolog.cli.lazy import COMMANDS, load_command


def test_the_overview_names_every_command_and_imports_none(offline: Run) -> None:
    code = (
        "import sys\n"
        "from horolog.cli import main\n"
        "sys.argv = ['horolog', '--help']\n"
        "try: main()\n"
        "finally: print([n for n in sys.modules if n in ('kio', 'numpy', 'asyncio') or "
        "(n.startswith('horolog.') and not n.startswith('horolog.cli'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *overview, imported = done.stdout.splitlines()
    assert imported == "[]"
    for name, entry in COMMANDS.items():
        assert any(name in line and entry.summary in line for line in overview)


def test_the_overview_is_quick() -> None:
    """By what it imports: a busy machine makes the same work take any time."""
    code = (
        "import sys\n"
        "from horolog.cli import main\n"
        "sys.argv = ['horolog', '--help']\n"
        "try: main()\n"
        "finally: print(len(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) < 400  # Click and Rich; 0.15 s on an idle machine


@pytest.mark.parametrize("command", [("serve",), ("spark",), ("spark", "script")])
def test_completion_is_an_option_of_the_whole_alone(offline: Run, command: tuple[str, ...]) -> None:
    assert "--install-completion" in offline("--help").out
    assert "--install-completion" not in offline(*command, "--help").out


@pytest.mark.parametrize(
    ("command", "needs_horolog"),
    [
        (("health",), True),
        (("retention", "explain"), True),
        (("retention", "moving-out"), True),
        (("topics", "history"), True),
        (("topics", "reset-append-time"), True),
        (("groups", "history"), True),
        (("follow",), True),
        (("promote",), True),
        (("groups", "list"), False),
        (("lag",), False),
    ],
    ids=str,
)
def test_help_says_which_brokers_answer(
    offline: Run, command: tuple[str, ...], needs_horolog: bool
) -> None:
    words = " ".join(offline(*command, "--help").out.replace("│", " ").split())
    assert ("connect to: horolog or Apache Kafka" in words) is not needs_horolog
    assert ("connect to: horolog. Apache Kafka's do not" in words) is needs_horolog


@pytest.mark.parametrize("command", ["", "log", "log verify", "produce", "spark audit"])
def test_a_command_without_arguments_prints_its_help_alone(offline: Run, command: str) -> None:
    helped = offline(*command.split())
    assert helped.code == 2
    assert re.search(rf"Usage: \w+ {command}".rstrip(), helped.out)
    assert helped.err == ""


def test_a_mistyped_command_is_answered_with_the_likely_one(offline: Run) -> None:
    refused = offline("prduce")
    assert refused.code == 2
    assert "Did you mean 'produce'" in refused.err


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_every_command_explains_itself(offline: Run, name: str) -> None:
    helped = offline(name, "--help")
    assert helped.code == 0
    assert "Usage:" in helped.out
    assert load_command(name).name == name


def test_a_broker_that_is_not_there_is_a_finding(offline: Run) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        seen = offline("topics", "list", "-b", address)
    assert seen.code == 1
    assert seen.err.startswith("horolog: no broker answered: 127.0.0.1")
    assert offline("topics", "list", "-b", "nonsense").code == 2


def test_a_reader_that_has_seen_enough_ends_the_command_quietly() -> None:
    command = f"{sys.executable} -m horolog log inspect tests/golden/clean --batches | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_a_bug_keeps_its_traceback(offline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*args: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("horolog.cli.connecting.KafkaBrokers.connect", buggy)
    with pytest.raises(ZeroDivisionError):
        offline("topics", "list")


def test_an_interruption_ends_with_its_own_code(
    offline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("horolog.cli.connecting.KafkaBrokers.connect", interrupted)
    assert offline("topics", "list").code == 130


@pytest.mark.parametrize("command", [("log", "verify"), ("spark", "audit"), ("consume",)])
def test_help_is_wrapped_where_the_terminal_ends_only(command: tuple[str, ...]) -> None:
    shown = run_command(*command, "--help", COLUMNS="1000", TERMINAL_WIDTH="1000").out
    prose = shown.split("╭")[0].split("Usage:")[1]
    lines = [line.strip() for line in prose.splitlines() if line.strip()][1:]
    assert lines
    assert all(line.endswith(".") for line in lines), lines
