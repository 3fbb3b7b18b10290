"""Layouts of messages and error codes, against those of Apache Kafka's own classes."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, java

from horolog.errors import ErrorCode
from horolog.wire import ApiKey, Field, Kind, Shape, load

SOURCE = Path(__file__).parent / "clients" / "java" / "Schemas.java"
KINDS: tuple[Kind, ...] = ("request", "response")
RENAMED = {"generation_id": "generation_id_or_member_epoch"}
"""Names that Kafka 4.4 changed and kio has not, in TxnOffsetCommit."""


class Kafkas(NamedTuple):
    """What the classes of a release say, in the form of Schemas.java."""

    schemas: dict[tuple[str, int], Any]
    errors: dict[str, tuple[int, bool]]


def told_by(peer: str) -> Kafkas:
    done = subprocess.run(java(peer, str(SOURCE)), capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return Kafkas(
        {(line["schema"], line["version"]): line["fields"] for line in lines if "schema" in line},
        {line["error"]: (line["code"], line["retriable"]) for line in lines if "error" in line},
    )


@pytest.fixture(scope="module")
def newest() -> Kafkas:
    return told_by(NEWEST)


@pytest.fixture(scope="module")
def with_removed_versions() -> Kafkas:
    return told_by(LAST_WITH_OLD_FORMATS)


def fields_of(shape: Shape, renamed: dict[str, str]) -> list[Any]:
    fields = [described(field, shape, renamed) for field in shape.plain]
    if shape.is_flexible:
        tags = {str(field.tag): described(field, shape, renamed) for field in shape.tagged}
        fields.append(["_tagged_fields", {"tags": tags}])
    return fields


def described(field: Field, within: Shape, renamed: dict[str, str]) -> list[Any]:
    is_nullable = field.is_nullable and not field.is_array
    described: Any = {"is_nullable": is_nullable}
    if field.shape is not None:
        described["fields"] = fields_of(field.shape, renamed)
    else:
        described = kafkas_word(field.type, within.is_flexible, is_nullable)
    if field.is_array:
        described = {"array": described, "is_nullable": field.is_nullable}
    return [renamed.get(field.name, field.name), described]


def kafkas_word(kind: str, is_flexible: bool, is_nullable: bool) -> str:
    if kind in {"string", "bytes", "records"}:
        return f"{'COMPACT_' * is_flexible}{'NULLABLE_' * is_nullable}{kind.upper()}"
    return "BOOLEAN" if kind == "bool" else kind.upper()


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.title)
def test_every_version_has_the_layout_of_kafkas_classes(
    newest: Kafkas, with_removed_versions: Kafkas, api_key: ApiKey
) -> None:
    renamed = RENAMED if api_key is ApiKey.TXN_OFFSET_COMMIT else {}
    for kind in KINDS:
        for version in range(api_key.versions.min, api_key.versions.max + 1):
            ours = fields_of(load(kind, api_key, version), renamed)
            message = (f"{api_key.name} {kind}", version)
            theirs = newest.schemas.get(message)
            if theirs is None:
                theirs = with_removed_versions.schemas[message]
                # Records in their first versions may be null too, but have no word of their own.
                ours = json.loads(json.dumps(ours).replace("NULLABLE_RECORDS", "RECORDS"))
            assert ours == theirs, message


def test_error_codes_are_kafkas(newest: Kafkas) -> None:
    assert {code.name: (int(code), code.retriable) for code in ErrorCode} == newest.errors
