from __future__ import annotations

from pathlib import Path

import pytest

from horolog.storage import EpochStart, Files, LeaderEpochs, read_epochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    epochs = LeaderEpochs(Files(), str(tmp_path / "leader-epoch-checkpoint"))
    epochs.assign(2, 40)
    epochs.assign(5, 60)
    epochs.assign(6, 80)
    return epochs


def test_epochs_are_on_disk_as_soon_as_they_begin(epochs: LeaderEpochs, tmp_path: Path) -> None:
    read = read_epochs(Files(), str(tmp_path / "leader-epoch-checkpoint"))
    assert read == [EpochStart(2, 40), EpochStart(5, 60), EpochStart(6, 80)]
    assert epochs.latest == 6


def test_what_a_log_tells_of_epochs_is_written_once(tmp_path: Path) -> None:
    written = list[str]()

    class Counting(Files):
        def rename(self, source: str, target: str) -> None:
            written.append(target)
            super().rename(source, target)

    path = str(tmp_path / "leader-epoch-checkpoint")
    one_by_one = LeaderEpochs(Files(), path, [EpochStart(2, 40)])
    told = [
        (1, 0),
        (2, 40),
        (3, 50),
        (3, 55),
        (5, 60),
        (4, 65),
        (6, 60),
        *enumerate(range(99, 900)),
    ]
    for epoch, start in told:
        if epoch > one_by_one.latest:
            one_by_one.assign(epoch, start)
    epochs = LeaderEpochs(Counting(), path, [EpochStart(2, 40)])
    epochs.learn(EpochStart(*each) for each in told)
    assert epochs.entries == one_by_one.entries
    assert read_epochs(Files(), path) == list(epochs.entries)
    assert written == [path]


def test_the_same_epoch_begins_once(epochs: LeaderEpochs) -> None:
    epochs.assign(6, 90)
    assert epochs.entries[-1] == EpochStart(6, 80)


def test_an_epoch_in_which_nothing_was_written_gives_way(epochs: LeaderEpochs) -> None:
    epochs.assign(7, 80)
    assert epochs.entries == (EpochStart(2, 40), EpochStart(5, 60), EpochStart(7, 80))


def test_a_lower_epoch_erases_what_claimed_to_be_newer(epochs: LeaderEpochs) -> None:
    epochs.assign(4, 70)
    assert epochs.entries == (EpochStart(2, 40), EpochStart(4, 70))


@pytest.mark.parametrize(
    ("offset", "epoch"), [(39, -1), (40, 2), (59, 2), (60, 5), (80, 6), (1000, 6)]
)
def test_an_offset_was_written_in_an_epoch(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(-1, None, id="no epoch"),
        pytest.param(6, EpochStart(6, 100), id="the latest ends at the log end"),
        pytest.param(7, None, id="one that is yet to come"),
        pytest.param(1, EpochStart(1, 40), id="before the first: its start"),
        pytest.param(2, EpochStart(2, 60), id="ends where the next begins"),
        pytest.param(4, EpochStart(2, 60), id="unknown: the largest not above it"),
        pytest.param(5, EpochStart(5, 80), id="known"),
    ],
)
def test_where_an_epoch_ended(
    epochs: LeaderEpochs, asked: int, expected: EpochStart | None
) -> None:
    assert epochs.end_offset_for(asked, log_end_offset=100) == expected


def test_truncating_the_end_forgets_epochs_that_begin_there(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(60)
    assert epochs.entries == (EpochStart(2, 40),)


def test_truncating_the_start_moves_the_current_epoch_there(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_start(70)
    assert epochs.entries == (EpochStart(5, 70), EpochStart(6, 80))
    epochs.truncate_from_start(80)
    assert epochs.entries == (EpochStart(6, 80),)
    epochs.truncate_from_start(100)
    assert epochs.entries == (EpochStart(6, 100),)


def test_nothing_is_written_into_a_directory_that_is_only_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = LeaderEpochs(Files(read_only=True), str(path), [EpochStart(2, 40)])
    epochs.truncate_from_start(50)
    assert not path.exists()
