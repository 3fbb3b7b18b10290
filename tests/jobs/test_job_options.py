"""The options that the jobs share, on a command made for these tests."""

import ast
import inspect
import subprocess
from dataclasses import dataclass
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from horolog import jobs
from horolog.cli.jobs.command import Call, job_command
from horolog.cli.spark import JOBS
from horolog.errors import Misconfigured
from horolog.jobs.parameters.archive import Archive
from horolog.jobs.parameters.bootstrap import Bootstrap
from horolog.jobs.parameters.files import Index
from horolog.jobs.parameters.option import Option, declared, pinned
from horolog.jobs.parameters.shared import Once, Reads
from horolog.jobs.parameters.table import JOB_TABLE
from horolog.jobs.state import JobState
from horolog.spark.errors import TaskFailed

app = typer.Typer()
given: dict[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class Job(Reads):
    """A job."""

    once: Once = True
    wait_ms: Annotated[int, Option("How long.", flag="--wait", is_duration=True)] = 60_000
    size_bytes: Annotated[int, Option("How large.", flag="--size", scale=1 << 20)] = 3 << 20
    form: Annotated[str, Option("Which.", choices=("a", "b"))] = "a"


@job_command(app, Job)
def job(made: Job, call: Call) -> None:
    given.update(
        source=made.source,
        topics=made.topics,
        from_=made.from_,
        settings=made.settings,
        once=made.once,
    )
    given["job"] = made


def run(*arguments: str) -> dict[str, Any]:
    given.clear()
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    made = dict(given)
    made.pop("job")
    return made


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


def test_durations_and_sizes_are_milliseconds_and_bytes_in_a_job() -> None:
    run("--source", "./log")
    assert (given["job"].wait_ms, given["job"].size_bytes, given["job"].once) == (
        60_000,
        3 << 20,
        False,
    )
    run("--source", "./log", "--wait", "2h", "--size", "7", "--once")
    assert (given["job"].wait_ms, given["job"].size_bytes, given["job"].once) == (
        7_200_000,
        7 << 20,
        True,
    )
    with pytest.raises(Misconfigured, match="soon is not a duration"):
        run("--source", "./log", "--wait", "soon")
    refused = CliRunner().invoke(app, ["--source", "./log", "--form", "c"])
    assert (refused.exit_code, "is not one of 'a', 'b'" in refused.output) == (2, True)


def test_the_help_says_the_defaults_as_they_are_written() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert "[default: 1m]" in shown
    assert "[default: 3]" in shown
    assert "[default: a]" in shown


def test_a_state_has_the_same_arguments_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = Job(source="./log/../log", topics="a, b,a", from_="-1h", settings={"x": "secret"})
    two = Job(source=tmp_path / "log", topics=["a", "b"], from_="-1h", once=False)
    assert pinned(one) == pinned(two)
    assert pinned(one) == {
        "source": str(tmp_path / "log"),
        "topics": ["a", "b"],
        "topics_pattern": None,
        "from": "-1h",
        "to": None,
    }
    tables = [
        pinned(Bootstrap(table=each, target="h:1", topic="t"))["table"]
        for each in ("t.parquet", "./t.parquet", tmp_path / "t.parquet")
    ]
    assert tables == 3 * [str(tmp_path / "t.parquet")]
    assert "secret" not in str(pinned(Job(source="s3://key:secret@bucket/log")))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"topics": "x,y"}, {"topics": ["y", "x", "y"]}),
        ({"from_": "2024-05-06T09:00Z"}, {"from_": "2024-05-06T11:00:00+02:00"}),
        ({"from_": "2024-05-06T09:00Z"}, {"from_": 1_714_986_000_000}),
        ({"source": "a:1,b:2"}, {"source": "b:2, a:1"}),
    ],
)
def test_a_state_takes_the_same_options_in_other_words(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    for each in (pinned(Job(**{"source": "h:1"} | given)) for given in (first, second)):
        with JobState(tmp_path / "s", "job", each) as state:
            state.write("begun", {})
    other = pinned(Job(source="h:1", topics="x", from_="-1h"))
    with pytest.raises(Misconfigured, match="a run with another"):
        JobState(tmp_path / "s", "job", other)


def test_a_window_and_paths_are_the_same_in_other_words(tmp_path: Path) -> None:
    windows = ["2024-05-06T09:00Z..", " 2024-05-06T11:00+02:00 .. "]
    one, two = (pinned(Archive(archive="a", source="h:1", window=each)) for each in windows)
    assert one == two
    assert pinned(Index(paths=["a", "b"])) == pinned(Index(paths=["b", "a"]))
    assert pinned(Bootstrap(table="t", target="h:1", topic="t", key="a,b")) != pinned(
        Bootstrap(table="t", target="h:1", topic="t", key="b,a")
    )


def ask_in_vain() -> None:
    with Call("mirror").session() as spark:
        assert spark.sparkContext
        raise ConnectionRefusedError("Connection refused")


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_job_whose_jvm_has_died_says_so(monkeypatch: pytest.MonkeyPatch, is_dead: bool) -> None:
    with subprocess.Popen(["sleep", "60"]) as jvm:
        gateway = SimpleNamespace(proc=jvm)
        started = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway), stop=lambda: None)
        monkeypatch.setattr("horolog.spark.session", lambda *_, **__: started)
        if is_dead:
            jvm.kill()
        expected = TaskFailed if is_dead else ConnectionRefusedError
        with pytest.raises(expected, match="killed by signal 9" if is_dead else "refused"):
            ask_in_vain()
        jvm.kill()


def test_a_job_shows_no_settings_which_may_hold_secrets() -> None:
    for name, row in JOB_TABLE.items():
        made = row.job
        required = {each.name: "h:1" for each in declared(made) if each.is_required}
        secret = {
            each.name: {"kafka.sasl.jaas.config": "hush"}
            for each in declared(made)
            if each.flag in ("--set", "--target-set", "--option")
        }
        assert secret or name == "convert", name
        assert "hush" not in repr(made(**required, **secret)), name


def test_a_state_of_a_job_that_has_got_another_option_is_the_same(tmp_path: Path) -> None:
    with JobState(tmp_path, "job", {"source": "a"}) as kept:
        kept.write("document", {})
    with JobState(tmp_path, "job", {"source": "a", "rename": None}):
        pass
    with pytest.raises(Misconfigured, match="another rename: None then, 'x' now"):
        JobState(tmp_path, "job", {"source": "a", "rename": "x"})


def test_a_function_has_the_options_of_its_job_as_arguments() -> None:
    parameters = inspect.signature(jobs.compare).parameters
    assert [*parameters][:3] == ["spark", "topics", "topics_pattern"]
    assert parameters["fields"].default == "key,value,headers,time"
    assert "mirror_state: The state directory of a mirror" in str(jobs.compare.__doc__)
    with pytest.raises(TypeError, match="sauce"):
        jobs.compare(None, sauce="x")


def test_an_iterator_that_a_function_gets_is_read_as_often_as_its_job_needs(tmp_path: Path) -> None:
    # Source and target are looked at one after the other, each with the groups.
    with pytest.raises(Misconfigured, match="a log directory keeps no groups"):
        jobs.mirror(
            SimpleNamespace(),
            source="127.0.0.1:1",
            target=tmp_path / "log",
            topics="clicks",
            groups=iter(["readers", "others"]),
            dry_run=True,
        )


def test_every_job_is_a_command_and_a_function() -> None:
    others = {"archived", "check_archive", "follow_audit", "merge_archive", "replay"}
    assert set(jobs.__all__) - others == set(JOBS) - {"script"}
    assert all(callable(getattr(jobs, name)) for name in jobs.__all__)


def test_a_job_takes_two_files() -> None:
    source = Path(str(jobs.__file__)).parents[1]
    trees = {path: ast.parse(path.read_text()) for path in source.rglob("*.py")}
    for name in ("compare", "restore"):
        row = JOB_TABLE[name]
        naming = {
            path.relative_to(source / "jobs").with_suffix("").as_posix()
            for path, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.ClassDef)
            and getattr(node, "id", getattr(node, "name", "")) == row.job.__name__
        }
        declared_in = row.job.__module__.removeprefix("horolog.jobs.").replace(".", "/")
        run_in = row.module.replace(".", "/")
        assert {each.removesuffix("/__init__") for each in naming} == {declared_in, run_in}, name


def test_no_module_hides_a_job() -> None:
    modules = {each.name for each in iter_modules(jobs.__path__)}
    assert modules.isdisjoint(jobs.__all__)
