"""The options that the jobs share, on a command made for these tests."""

from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from horolog import jobs
from horolog.cli.jobs.options import Config, From, Once, Settings, Source, Topics, settings_of
from horolog.cli.spark import JOBS
from horolog.errors import Misconfigured

app = typer.Typer()
given: dict[str, Any] = {}


@app.command()
def job(
    source: Source,
    topics: Topics = None,
    from_: From = None,
    settings: Settings = None,
    once: Once = False,
    config: Config = None,
) -> None:
    given.update(
        source=source, topics=topics, from_=from_, settings=settings_of(settings), once=once
    )


def run(*arguments: str) -> dict[str, Any]:
    given.clear()
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return dict(given)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(
        'source = "127.0.0.1:9092"\ntopics = ["a", "b"]\nfrom = -1\nonce = true\n'
        '[set]\n"kafka.security.protocol" = "SSL"\n"kafka.x" = true\n'
    )
    return path


def test_a_config_file_gives_options_by_name(config: Path) -> None:
    assert run("--config", str(config)) == {
        "source": "127.0.0.1:9092",
        "topics": "a,b",
        "from_": "-1",
        "once": True,
        "settings": {"kafka.security.protocol": "SSL", "kafka.x": "true"},
    }


def test_the_command_line_wins_over_the_config_file(config: Path) -> None:
    found = run("--source", "./log", "--config", str(config), "--from", "-7d")
    assert (found["source"], found["from_"], found["topics"]) == ("./log", "-7d", "a,b")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('sauce = "x"', "there is no option --sauce"),
        ("source = ", "is no TOML"),
        ("config = 'x'", "there is no option --config"),
        ("[source]\na = 1", "source is no table"),
        ("source = " + "[" * 10_000, "is nested too deeply"),
        ("source = " + "9" * 5_000, "is no TOML"),
        (".".join("a" * 5_000) + " = 1", "there is no option --a"),
        (".".join(["set"] * 5_000) + " = 1", "quote names with dots"),
        ("[set]\nkafka.security.protocol = 'SSL'", "quote names with dots"),
        ("topics = [[1]]", "values within values"),
        ("#" * 70_000, "more than 65536 bytes"),
    ],
)
def test_a_config_file_with_a_mistake_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(Misconfigured, match=sentence):
        run("--config", str(path))
    with pytest.raises(Misconfigured, match="No such file"):
        run("--config", str(tmp_path / "none.toml"))


def test_every_job_is_a_command_and_a_function() -> None:
    others = {"archived", "check_archive", "follow_audit", "merge_archive"}
    assert set(jobs.__all__) - others == set(JOBS) - {"script"}
    assert all(callable(getattr(jobs, name)) for name in jobs.__all__)


def test_no_module_hides_a_job() -> None:
    modules = {each.name for each in iter_modules(jobs.__path__)}
    assert modules.isdisjoint(jobs.__all__)
