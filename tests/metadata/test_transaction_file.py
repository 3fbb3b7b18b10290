"""Transactional ids in one file."""

from pathlib import Path

from horolog.metadata.transaction_file import TransactionFile
from horolog.record.builder import build_batch
from horolog.storage.files import Files
from horolog.transactions.replay import Replay, record_of
from horolog.transactions.values import Producer, Transaction


def opened(path: Path, least_bytes: int = 1 << 20) -> tuple[TransactionFile, Replay]:
    file = TransactionFile(Files(), str(path), now_ms=lambda: 1, least_bytes=least_bytes)
    replay = Replay()
    file.load(replay.take)
    return file, replay


def batch(name: str, producer_id: int) -> bytes:
    return build_batch([record_of(name, Transaction(Producer(producer_id, 0), 1), 1)])


def test_states_are_there_after_a_kill(tmp_path: Path) -> None:
    file, _ = opened(tmp_path / "f")
    file.append([batch("a", 1), batch("b", 2)])
    file.append([batch("a", 3), build_batch([record_of("b", None, 1)])])
    _, replay = opened(tmp_path / "f")
    assert {name: state.producer.id for name, state in replay.states.items()} == {"a": 3}


def test_file_that_has_grown_is_replaced_by_what_counts(tmp_path: Path) -> None:
    file, _ = opened(tmp_path / "f", least_bytes=4_000)
    for producer_id in range(200):
        file.append([batch("a", producer_id), batch(f"{producer_id % 5}", producer_id)])
    assert (tmp_path / "f").stat().st_size < 8_000
    file.close()
    _, replay = opened(tmp_path / "f")
    assert replay.states["a"].producer.id == 199
    assert len(replay.states) == 6


def test_damage_costs_what_it_hits(tmp_path: Path) -> None:
    file, _ = opened(tmp_path / "f")
    file.append([batch("a", 1)])
    size = (tmp_path / "f").stat().st_size
    file.append([batch("b", 2), batch("c", 3)])
    data = bytearray((tmp_path / "f").read_bytes())
    data[size + 70] ^= 1
    (tmp_path / "f").write_bytes(data)
    _, replay = opened(tmp_path / "f")
    assert set(replay.states) == {"a", "c"}
