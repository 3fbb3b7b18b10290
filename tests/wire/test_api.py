"""The table of what is answered, against kio's schemas."""

import pytest
from kio.index import load_request_schema, load_response_schema

from horolog.wire.api import FLEXIBLE_FROM, SUPPORTED, ApiKey, Versions, advertised, is_flexible

EVERY_VERSION = [
    (api_key, version)
    for api_key, versions in SUPPORTED.items()
    for version in range(versions.min, versions.max + 1)
]


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.title)
def test_every_api_has_a_range_and_a_first_flexible_version(api_key: ApiKey) -> None:
    assert SUPPORTED[api_key].min <= SUPPORTED[api_key].max
    assert FLEXIBLE_FROM[api_key] >= 0


def test_every_version_has_both_schemas_and_the_headers_that_we_think() -> None:
    for api_key, version in EVERY_VERSION:
        request = load_request_schema(api_key, version)
        response = load_response_schema(api_key, version)
        assert request.__flexible__ == is_flexible(api_key, version), (api_key, version)
        assert request.__header_schema__.__version__ == 1 + is_flexible(api_key, version)
        always_old = api_key is ApiKey.API_VERSIONS
        expected = 0 if always_old else int(is_flexible(api_key, version))
        assert response.__header_schema__.__version__ == expected, (api_key, version)


def test_produce_is_advertised_from_0_and_all_else_as_it_is_served() -> None:
    assert advertised(ApiKey.PRODUCE) == Versions(0, SUPPORTED[ApiKey.PRODUCE].max)
    assert SUPPORTED[ApiKey.PRODUCE].min == 3
    for api_key in set(ApiKey) - {ApiKey.PRODUCE}:
        assert advertised(api_key) == SUPPORTED[api_key]


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        (Versions(3, 13), Versions(0, 9), Versions(3, 9)),
        (Versions(3, 13), Versions(13, 20), Versions(13, 13)),
        (Versions(3, 13), Versions(0, 2), None),
    ],
)
def test_common_versions_are_those_that_both_have(
    ours: Versions, theirs: Versions, common: Versions | None
) -> None:
    assert ours.common(theirs) == theirs.common(ours) == common


def test_titles_are_kafkas_spelling() -> None:
    assert ApiKey.OFFSET_FOR_LEADER_EPOCH.title == "OffsetForLeaderEpoch"
