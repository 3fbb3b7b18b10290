"""Decoded requests as the type checker sees them: made from the schemas, true at run time."""

import contextlib
import io
from typing import get_type_hints

import pytest
from tools import request_views

from horolog.wire import (
    SUPPORTED,
    ApiKey,
    Shape,
    decode_request,
    encode_request,
    load,
    request_view,
    requests,
)


def test_the_views_are_those_of_the_schemas() -> None:
    made = io.StringIO()
    with contextlib.redirect_stdout(made):
        request_views.main()
    with open(requests.__file__) as file:
        assert file.read() == made.getvalue(), (
            "run: python -m tools.request_views > src/horolog/wire/requests.py"
        )


def structures(shape: Shape) -> list[Shape]:
    inner = [each.shape for each in shape.fields if each.shape is not None]
    return [shape, *(each for one in inner for each in structures(one))]


@pytest.mark.parametrize("key", SUPPORTED, ids=lambda key: key.title)
def test_whatever_its_version_a_request_has_every_field_of_its_view(key: ApiKey) -> None:
    for version in range(key.versions.min, key.versions.max + 1):
        for shape in structures(load("request", key, version)):
            view = request_view(key, shape.name)
            assert view.__module__ == requests.__name__
            value = shape.tuple_type(*range(len(shape.fields)))
            for number, each in enumerate(shape.fields):
                assert getattr(value, each.name) == number
            for name in get_type_hints(view):
                assert hasattr(value, name), f"{key.title} v{version} {shape.name}.{name}"


def test_a_field_that_a_version_lacks_has_kafkas_default() -> None:
    metadata = decode_request(
        ApiKey.METADATA, 1, encode_request(ApiKey.METADATA, 1, {"topics": [{"name": "t"}]})
    )
    assert metadata.allow_auto_topic_creation
    assert not metadata.include_topic_authorized_operations
    assert metadata.topics[0].topic_id is None
    fields = {"group_id": "g", "topics": []}
    commit = decode_request(
        ApiKey.OFFSET_COMMIT,
        2,
        encode_request(
            ApiKey.OFFSET_COMMIT,
            2,
            fields | {"generation_id_or_member_epoch": 1, "member_id": "m", "retention_time_ms": 5},
        ),
    )
    assert (commit.retention_time_ms, commit.group_instance_id) == (5, None)
    commit = decode_request(
        ApiKey.OFFSET_COMMIT,
        7,
        encode_request(
            ApiKey.OFFSET_COMMIT,
            7,
            fields
            | {"generation_id_or_member_epoch": 1, "member_id": "m", "group_instance_id": "i"},
        ),
    )
    assert (commit.retention_time_ms, commit.group_instance_id) == (-1, "i")
