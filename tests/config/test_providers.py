"""Values of properties that come from files, directories and the environment."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secrets_kept import password

from horolog.config import (
    Settings,
    broker_settings,
    files_of_secrets,
    with_provided,
)
from horolog.config.describe import describe_broker
from horolog.errors import Misconfigured

CLASSES = "org.apache.kafka.common.config.provider"
SERVED = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{CLASSES}.FileConfigProvider",
    "config.providers.dir.class": f"{CLASSES}.DirectoryConfigProvider",
    "config.providers.env.class": f"{CLASSES}.EnvVarConfigProvider",
}
SECRET = password("provided")


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "broker.properties").write_text(f"password = {SECRET}\nempty=\nnode=7\n")
    (directory / "plain.password").write_text(f"{SECRET}\n")
    (directory / "large").write_text("password=x\n" + (1 << 20) * "#")
    (directory / "latin").write_bytes(b"\xe9")
    os.mkfifo(directory / "pipe")
    monkeypatch.setenv("HOROLOG_TEST_SECRET", SECRET)
    return directory


def provided(text: str, **more: str) -> str:
    return with_provided({**SERVED, **more, "a": text})["a"]


def test_a_variable_becomes_the_value_of_its_provider(secrets: Path) -> None:
    file = secrets / "broker.properties"
    for text, value in {
        f"${{file:{file}:password}}": SECRET,
        f"${{file:{file}:empty}}": "",
        # Kafka trims values, so that a file may end with a line break.
        f"${{dir:{secrets}:plain.password}}": SECRET,
        "${env:HOROLOG_TEST_SECRET}": SECRET,
        f'user_a="${{env:HOROLOG_TEST_SECRET}}" user_b="${{file:{file}:node}}";': (
            f'user_a="{SECRET}" user_b="7";'
        ),
        "${other:x:y} ${file} $env": "${other:x:y} ${file} $env",
    }.items():
        assert provided(text) == value, text


def test_without_providers_nothing_is_replaced(secrets: Path) -> None:
    text = "${env:HOROLOG_TEST_SECRET}"
    assert with_provided({"a": text, "config.providers": ""}) == {"a": text, "config.providers": ""}


def test_a_value_that_is_brought_in_is_not_looked_through_again(secrets: Path) -> None:
    (secrets / "plain.password").write_text("${env:HOROLOG_TEST_SECRET}")
    assert provided(f"${{dir:{secrets}:plain.password}}") == "${env:HOROLOG_TEST_SECRET}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${file:{dir}/broker.properties:other}", "the file does not have the key"),
        ("${file:{dir}/missing:password}", "No such file or directory"),
        ("${file::password}", "name a file and a key"),
        ("${file:{dir}:password}", "Is a directory"),
        ("${dir:{dir}:missing}", "No such file or directory"),
        ("${dir:{dir}:pipe}", "it is no regular file"),
        ("${file:/dev/zero:password}", "it is no regular file"),
        ("${file:{dir}/large:password}", "it is larger than 1 MiB"),
        ("${dir:{dir}:latin}", "the file is not UTF-8 text"),
        ("${dir:{dir}:../secrets/plain.password}", "name a directory and a file in it"),
        ("${dir:{dir}:}", "name a directory and a file in it"),
        ("${env:HOROLOG_TEST_MISSING}", "no such variable"),
        ("${env:path:HOROLOG_TEST_SECRET}", "without a path"),
    ],
)
def test_what_a_provider_lacks_is_refused_by_name(secrets: Path, text: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words) as refused:
        provided(text.replace("{dir}", str(secrets)))
    assert str(refused.value).startswith("a=${")
    assert SECRET not in str(refused.value)


def test_a_provider_reads_below_its_allowed_paths_alone(secrets: Path) -> None:
    other = secrets.parent / "other"
    other.write_text("password=x")
    for kind in ("file", "dir"):
        allowed = {f"config.providers.{kind}.param.allowed.paths": f"/nonexistent-no,{secrets}"}
        with pytest.raises(Misconfigured, match="has to be absolute, and to exist"):
            provided("x", **allowed)
    only = {
        "config.providers.file.param.allowed.paths": str(secrets),
        "config.providers.dir.param.allowed.paths": str(secrets),
    }
    assert provided(f"${{file:{secrets}/broker.properties:node}}", **only) == "7"
    assert provided(f"${{dir:{secrets}:plain.password}}", **only) == SECRET
    for text in (
        f"${{file:{other}:password}}",
        f"${{file:{secrets}/../other:password}}",
        f"${{dir:{secrets.parent}:other}}",
        f"${{dir:{secrets}/..:other}}",
        f"${{file:{secrets}-beside/x:password}}",
    ):
        with pytest.raises(Misconfigured, match=r"allowed\.paths .* does not permit"):
            provided(text, **only)


def test_the_environment_gives_what_matches_its_allowlist_as_a_whole(secrets: Path) -> None:
    name = "config.providers.env.param.allowlist.pattern"
    assert provided("${env:HOROLOG_TEST_SECRET}", **{name: "HOROLOG_.*"}) == SECRET
    with pytest.raises(Misconfigured, match="no such variable"):
        provided("${env:HOROLOG_TEST_SECRET}", **{name: "HOROLOG"})
    with pytest.raises(Misconfigured, match=r"allowlist\.pattern"):
        provided("x", **{name: "("})


@pytest.mark.parametrize("kind", ["", "com.example.VaultConfigProvider"])
def test_other_classes_are_refused_by_name(kind: str) -> None:
    settings = {"config.providers": "vault", "config.providers.vault.class": kind}
    for read in (with_provided, lambda given: Settings(given).broker_config()):
        with pytest.raises(Misconfigured, match=r"config\.providers\.vault\.class has to be"):
            read(settings)


def test_a_value_that_is_brought_in_is_shown_nowhere(secrets: Path) -> None:
    variable = "${env:HOROLOG_TEST_SECRET}"
    given = with_provided({**SERVED, "broker.rack": variable, "log.dir": "d"})
    settings = Settings(given)
    assert settings.broker_config().broker_rack == SECRET
    (rack,) = describe_broker(settings, ["broker.rack"])
    assert (rack.value, rack.sensitive) == (None, True)
    assert SECRET not in repr(describe_broker(settings))
    assert SECRET not in repr(given)
    for name in ("num.partitions", "listeners", "super.users", "max.connections.per.ip.overrides"):
        with pytest.raises(Misconfigured) as refused:
            Settings(with_provided({**SERVED, name: variable})).broker_config()
        assert SECRET not in str(refused.value)


def test_files_that_variables_name_are_listed(secrets: Path) -> None:
    file = secrets / "broker.properties"
    given = {
        **SERVED,
        "a": f"${{file:{file}:password}} ${{env:X}}",
        "b": f"${{dir:{secrets}:plain.password}}",
        "c": "${other:/x:y}",
    }
    assert list(files_of_secrets(given)) == [file, secrets / "plain.password"]
    assert list(files_of_secrets({**given, "config.providers": ""})) == []


def test_providers_are_settings_of_a_broker() -> None:
    Settings({**SERVED, "config.providers.env.param.allowlist.pattern": "A.*"}).broker_config()
    assert "config.providers.env.class" not in broker_settings()
    with pytest.raises(Misconfigured, match=r"config name: config\.providers\.env\.x"):
        Settings({"config.providers.env.x": "1"}).broker_config()


@given(st.text(alphabet="${}:aAe nv/.", max_size=40))
def test_any_text_is_kept_or_refused_with_a_sentence(text: str) -> None:
    with suppress(Misconfigured):
        assert provided(text) == text
