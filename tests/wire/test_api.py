"""The table of what is answered, against kio's schemas."""

import pytest
from kio.index import KioIndexError, load_request_schema, load_response_schema

from horolog.wire import NEWER, OLDER, ApiKey, Versions, is_flexible

EVERY_VERSION = [
    (api_key, version)
    for api_key in ApiKey
    for version in range(api_key.versions.min, api_key.versions.max + 1)
]


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.title)
def test_every_api_has_a_range_and_a_first_flexible_version(api_key: ApiKey) -> None:
    assert api_key.versions.min <= api_key.versions.max
    assert api_key.flexible_from >= 0


def test_every_version_has_both_schemas_and_the_headers_that_we_think() -> None:
    for api_key, version in EVERY_VERSION:
        if version in OLDER.get(("request", api_key), ()):
            assert not is_flexible(api_key, version)
            continue
        if version in NEWER.get(("request", api_key), ()):
            assert is_flexible(api_key, version)
            continue
        request = load_request_schema(api_key, version)
        response = load_response_schema(api_key, version)
        assert request.__flexible__ == is_flexible(api_key, version), (api_key, version)
        assert request.__header_schema__.__version__ == 1 + is_flexible(api_key, version)
        always_old = api_key is ApiKey.API_VERSIONS
        expected = 0 if always_old else int(is_flexible(api_key, version))
        assert response.__header_schema__.__version__ == expected, (api_key, version)


def test_each_older_version_has_both_layouts_and_kio_has_none_of_them() -> None:
    for kind, api_key in OLDER:
        versions = sorted(OLDER[kind, api_key])
        assert versions == sorted(OLDER["response" if kind == "request" else "request", api_key])
        assert versions == list(range(api_key.versions.min, len(versions)))
        for version in versions:
            with pytest.raises(KioIndexError):
                load_request_schema(api_key, version)


def test_each_newer_version_has_both_layouts_and_kio_has_none_of_them() -> None:
    for kind, api_key in NEWER:
        versions = sorted(NEWER[kind, api_key])
        assert versions == sorted(NEWER["response" if kind == "request" else "request", api_key])
        newest = api_key.versions.max
        assert versions == list(range(newest + 1 - len(versions), newest + 1))
        for version in versions:
            with pytest.raises(KioIndexError):
                load_request_schema(api_key, version)
        like = NEWER[kind, api_key][versions[0]].like  # kio lacks the API
        before = (api_key, versions[0] - 1) if like is None else (like, versions[0])
        assert load_request_schema(*before)


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
