"""Records of a metadata log beside what Kafka's dump tool prints of them."""

import base64
from pathlib import Path
from typing import Any
from uuid import UUID

from horolog.record import parse_header, read_values
from horolog.schemas.declared import RecordShape
from horolog.schemas.metadata import Record
from horolog.storage import Files, RecordFile, kafka_uuid

NAMES = {
    "BrokerChange": "BROKER_REGISTRATION_CHANGE_RECORD",
    "AccessControlEntry": "ACCESS_CONTROL_ENTRY_RECORD",
    "ScramCredential": "USER_SCRAM_CREDENTIAL_RECORD",
    "RemoveScramCredential": "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
    "NoOp": "NO_OP_RECORD",
}


def values_in(path: Path) -> list[bytes]:
    file = RecordFile(Files(read_only=True), str(path))
    found = [
        value
        for batch in file.read()
        if not parse_header(batch).is_control
        for value in read_values(batch)
        if value is not None
    ]
    assert file.lost == ()
    return found


def name_of(record: Record) -> str:
    name = type(record).__name__.removesuffix("Record")
    words = "".join(f"_{each}" if each.isupper() else each.upper() for each in name)
    return NAMES.get(name, f"{words[1:]}_RECORD")


def plain(value: Any) -> Any:
    match value:
        case UUID():
            return kafka_uuid(value)
        case bytes():
            return base64.b64encode(value).decode()
        case tuple() if hasattr(value, "_fields"):
            return [plain(each) for each in value]
        case tuple():
            return [plain(each) for each in value]
        case _:
            return value


def fields_of(record: Record, version: int) -> list[Any]:
    return [
        plain(value)
        for field, value in zip(RecordShape(type(record)).fields, record, strict=True)
        if field.since <= version and (field.tag is None or value != field.default)
    ]


def without_names(said: Any) -> Any:
    if isinstance(said, dict):
        return [without_names(each) for each in said.values()]
    return [without_names(each) for each in said] if isinstance(said, list) else said
