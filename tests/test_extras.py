"""Without the packages of an extra every name and command says what to install, in one sentence."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import horolog.client
import horolog.jobs
import horolog.sources
import horolog.storage
import horolog.testing

_BLOCKING = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def run_without(packages: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    blocking = _BLOCKING.format(packages=packages)
    return subprocess.run(
        [sys.executable, "-c", blocking + code], check=False, capture_output=True, text=True
    )


def command_without(packages: tuple[str, ...], *args: str) -> subprocess.CompletedProcess[str]:
    code = f"sys.argv = {['horolog', *args]!r}\nfrom horolog.cli import main\nmain()"
    return run_without(packages, code)


NAMES = """
import importlib
for name in {names!r}:
    package, _, attribute = name.rpartition(".")
    try:
        if package == "horolog.spark":
            importlib.import_module("horolog.spark")
        else:
            exec(f"from {{package}} import {{attribute}}")
    except ImportError as error:
        print(name, type(error).__name__, error)
    else:
        print(name, "is there")
    if package != "horolog.spark":
        module = importlib.import_module(package)
        print(name, "listed" if attribute in dir(module) else "unlisted")
"""


def said_of(packages: tuple[str, ...], names: list[str]) -> dict[str, list[str]]:
    done = run_without(packages, NAMES.format(names=names))
    assert done.returncode == 0, done.stderr
    said: dict[str, list[str]] = {name: [] for name in names}
    for line in done.stdout.splitlines():
        name, _, words = line.partition(" ")
        said[name].append(words)
    return said


@pytest.mark.parametrize(
    "package",
    [
        "broker",
        "client",
        "config",
        "jobs",
        "metadata",
        "network",
        "record",
        "sources",
        "storage",
        "wire",
    ],
)
def test_every_name_that_a_package_lists_can_be_imported(package: str) -> None:
    module = importlib.import_module(f"horolog.{package}")
    assert [name for name in dir(module) if not hasattr(module, name)] == []


@pytest.mark.parametrize("packages", [("pyarrow",), ("pyarrow", "pyspark", "pandas")])
def test_what_needs_arrow_names_its_extra(packages: tuple[str, ...]) -> None:
    names = ["horolog.client.Producer", "horolog.client.TransactionalProducer"]
    names.append("horolog.sources.scan")
    for name, words in said_of(packages, names).items():
        sentence = f"{name} needs pyarrow: pip install 'horolog[arrow]'"
        assert words == [f"MissingExtra {sentence}", "unlisted"]


@pytest.mark.parametrize("packages", [("pyspark",), ("pyarrow",), ("pyspark", "pyarrow", "pandas")])
def test_what_needs_spark_names_its_extra(packages: tuple[str, ...]) -> None:
    names = [f"horolog.jobs.{name}" for name in horolog.jobs.__all__ if name != "replay"]
    for name, (words, listed) in said_of(packages, names).items():
        assert words.startswith("MissingExtra "), (name, words)
        assert words.endswith("pip install 'horolog[spark]'"), (name, words)
        assert listed == "unlisted"
    (of_spark,) = said_of(packages, ["horolog.spark.session"]).values()
    assert of_spark == [
        (
            "MissingExtra horolog.spark needs PySpark 4.2 or later and pyarrow: "
            "pip install 'horolog[spark]'"
        )
    ]
    assert said_of(packages, ["horolog.jobs.replay"]) == {
        "horolog.jobs.replay": ["is there", "listed"]
    }


@pytest.mark.parametrize(
    ("packages", "args", "extra"),
    [
        (("pyarrow",), "produce t --from x.parquet", "arrow"),
        (("pyarrow",), "consume s3://bucket/log", "arrow"),
        (("pyspark",), "spark audit --source 127.0.0.1:1 --topics t", "spark"),
        (("pyarrow",), "spark audit --source 127.0.0.1:1 --topics t", "spark"),
        (("pyspark",), "spark latency --source 127.0.0.1:1 --topics t", "spark"),
        (
            ("pyspark",),
            "spark mirror --source 127.0.0.1:1 --target x --topics t --state s",
            "spark",
        ),
        (("pyspark",), "spark compare --source 127.0.0.1:1 --target x --topics t", "spark"),
        (("pyspark",), "spark reprocess --source 127.0.0.1:1 --target x --from -1h", "spark"),
        (("pyspark",), "spark archive --source 127.0.0.1:1 --archive a --topics t", "spark"),
        (("pyspark",), "spark archive --archive a --check", "spark"),
        (("pyarrow",), "spark archive --archive a --check", "spark"),
        (("pyspark",), "spark restore --archive a --target d --state s", "spark"),
        (("pyspark",), "spark index log --state s", "spark"),
        (("pyspark",), "spark convert log --to v2 --state s", "spark"),
        (("pyspark",), "spark bootstrap --table x --target 127.0.0.1:1 --topic t", "spark"),
        (("pyspark",), "spark failover record --source 127.0.0.1:1 --groups g --state s", "spark"),
        (("pyspark",), "demo", "spark,demo"),
        (("matplotlib",), "demo", "spark,demo"),
    ],
    ids=str,
)
def test_a_command_names_its_extra(packages: tuple[str, ...], args: str, extra: str) -> None:
    done = command_without(packages, *args.split())
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    assert line.startswith("horolog: ")
    assert f"pip install 'horolog[{extra}]'" in line


def test_a_store_of_certificates_names_its_extra(tmp_path: Path) -> None:
    store = tmp_path / "store.p12"
    store.write_bytes(b"\x30")
    properties = ("security.protocol=SSL", f"ssl.truststore.location={store}")
    given = [part for each in properties for part in ("--command-property", each)]
    done = command_without(("cryptography",), "topics", "list", "-b", "127.0.0.1:1", *given)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "pip install 'horolog[security]'" in line


def test_a_listener_with_tokens_names_its_extra(tmp_path: Path) -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    config = tmp_path / "server.properties"
    config.write_text(
        f"log.dirs={tmp_path}/log\n"
        "listeners=SASL_PLAINTEXT://127.0.0.1:0\n"
        "sasl.enabled.mechanisms=OAUTHBEARER\n"
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class="
        f"{handler}\n"
        "sasl.oauthbearer.jwks.endpoint.url=file:///keys\n"
        "sasl.oauthbearer.allow.unverified.audience=true\n"
        "sasl.oauthbearer.allow.unverified.issuer=true\n"
    )
    done = command_without(("jwt",), "serve", "--config", str(config))
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "horolog: OAUTHBEARER needs jwt: pip install 'horolog[security]'"
    )


def test_public_names_are_listed_for_completion() -> None:
    for module in (horolog.client, horolog.jobs, horolog.sources, horolog.testing, horolog.storage):
        names = dir(module)
        assert set(module.__all__) <= set(names)
        assert names == sorted(names)
    code = (
        "import rlcompleter, horolog.jobs, horolog.client\n"
        "complete = rlcompleter.Completer(dict(globals())).complete\n"
        "print([complete('horolog.jobs.rep', at) for at in range(2)])\n"
        "print(complete('horolog.client.Prod', 0))\n"
    )
    assert run_without(("pyspark", "pyarrow"), code).stdout.splitlines() == [
        "['horolog.jobs.replay(', None]",
        "horolog.client.Produced(",
    ]
    listed = run_without((), code).stdout
    assert "horolog.jobs.reprocess(" in listed


def test_an_import_that_fails_for_another_reason_is_a_bug() -> None:
    done = command_without(("rich",), "demo")
    assert "Traceback" in done.stderr


def test_the_environment_without_numba_has_the_rest_of_its_extras() -> None:
    root = Path(__file__).parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (more,) = re.findall(r'MORE="([^"]+)"', (root / "Makefile").read_text())
    needed = {re.split("[<>=]", package)[0] for package in extras["arrow"] + extras["spark"]}
    assert set(more.split()) == needed - {"numba"}
