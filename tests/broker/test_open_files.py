"""How the limit of open files is divided."""

import resource

import pytest

from horolog.broker import OpenFiles, share_out

PARTITIONS = 3_500  # KIP-33's example


def shares(monkeypatch: pytest.MonkeyPatch, limit: int) -> OpenFiles:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    return share_out()


@pytest.mark.parametrize(
    ("limit", "files"),
    [
        (20_000, 2 * PARTITIONS),  # records and append times
        (524_288, 4 * PARTITIONS),  # and both indexes; the hard limit that systemd sets
        (resource.RLIM_INFINITY, 4 * PARTITIONS),
    ],
)
def test_thousands_of_partitions_are_appended_to_in_turn_with_their_files_open(
    monkeypatch: pytest.MonkeyPatch, limit: int, files: int
) -> None:
    assert shares(monkeypatch, limit).logs >= files


@pytest.mark.parametrize("limit", [128, 160, 1024, 4096, 10_240, 20_000, 65_536, 1 << 20])
def test_connections_have_a_share_of_any_limit(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    shared = shares(monkeypatch, limit)
    assert shared.connections >= min(limit // 5 - 10, 5_000)
    assert sum(shared) < limit
