"""A manual clock turned by Kafka's own tools: one alters incrementally, one replaces."""

import re

import pytest
from tools.peers.kafka import LAST_WITH_OLD_FORMATS, NEWEST, run_tool

T0_MS = 1_577_836_800_000  # 2020-01-01
DAY_MS = 86_400_000


def configs(address: str, peer: str, *arguments: str) -> str:
    broker = ("--bootstrap-server", address, "--entity-type", "brokers", "--entity-name", "1")
    return run_tool("configs", *broker, *arguments, peer=peer).stdout.decode()


@pytest.mark.parametrize("peer", [NEWEST, LAST_WITH_OLD_FORMATS])
def test_the_clock_is_turned_and_returned_and_other_settings_stay(address: str, peer: str) -> None:
    start = "horolog.clock.now=2020-01-01T00:00Z"
    configs(address, peer, "--alter", "--add-config", f"log.retention.ms=123,{start}")
    turn = "horolog.clock.advance=8d,horolog.expire=true"
    assert "Completed" in configs(address, peer, "--alter", "--add-config", turn)
    told = configs(address, peer, "--describe", "--all")
    assert re.search(rf"horolog\.clock\.now={T0_MS + 8 * DAY_MS} ", told)
    assert re.search(r"log\.retention\.ms=123 ", told)
    configs(address, peer, "--alter", "--delete-config", "log.retention.ms")
