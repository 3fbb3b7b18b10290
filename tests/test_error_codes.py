"""The table of error codes, against kio's and Apache Kafka's."""

from kio.schema import errors

from horolog.errors import ErrorCode

SINCE_4_4 = {
    "group_deletion_failed": 134,
    "streams_topology_description_update_failed": 135,
    "controller_id_not_registered": 136,
}
"""Codes that kio lacks; `tests/interop/test_interop_schemas.py` asks Kafka for all."""


def test_codes_are_those_of_kio_and_those_that_it_lacks() -> None:
    theirs = {code.name: (int(code), code.retriable) for code in errors.ErrorCode}
    added = {name: (number, False) for name, number in SINCE_4_4.items()}
    assert not theirs.keys() & added.keys()
    assert {code.name: (int(code), code.retriable) for code in ErrorCode} == theirs | added


def test_a_number_has_one_name() -> None:
    assert len(ErrorCode.__members__) == len(set(ErrorCode))
    assert ErrorCode(134) is ErrorCode.group_deletion_failed
