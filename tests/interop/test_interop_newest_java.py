"""The newest Java client: the versions of requests that no other client has yet."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from peer_process import PeerProcess, compiled, java_command
from proxy import Proxy
from running_broker import BrokerProcess, a_broker_process
from tools.peers.kafka import free_port

SOURCE = Path(__file__).parent / "clients" / "java" / "Commands.java"
NETWORK = "org.apache.kafka.clients.NetworkClient"

broker = a_broker_process("in", "out")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("commands"))


def commands(address: str, classes: Path, directory: Path) -> PeerProcess:
    arguments = (address, "copies", "copier")
    command = java_command("Commands", *arguments, classes=classes, debugged=NETWORK)
    return PeerProcess(command, directory / "said")


@pytest.fixture
def java(broker: BrokerProcess, classes: Path, tmp_path: Path) -> Iterator[PeerProcess]:
    with commands(broker.address, classes, tmp_path) as process:
        yield process


def versions_sent(java: PeerProcess, api: str) -> set[int]:
    """The versions of an API in which the client sent requests."""
    return set(
        map(int, re.findall(rf"Sending {api} request with header .*?apiVersion=(\d+)", java.said))
    )


def test_offsets_are_committed_in_a_transaction_by_topic_id(
    broker: BrokerProcess, java: PeerProcess
) -> None:
    for number in range(3):
        assert java.ask(f"send in {number}", r"^sent .*") == f"sent {number} at {number}"
    assert java.ask("copy in out", r"^copied .*") == "copied 3"
    assert versions_sent(java, "TXN_OFFSET_COMMIT") == {6}
    (committed,) = broker.client.groups.committed("copies").values()
    assert committed.offset == 3


def test_group_with_a_member_is_not_deleted_and_the_client_says_why(
    broker: BrokerProcess, java: PeerProcess
) -> None:
    java.ask("send in 0", r"^sent .*")
    java.ask("copy in out", r"^copied .*")
    assert versions_sent(java, "DELETE_GROUPS") == {3}
    (refusal,) = java.find("^not deleted .*")
    assert "GroupNotEmptyException" in refusal
    assert java.ask("delete copies", r"^deleted .*") == "deleted copies"
    refusal = java.ask("delete copies", r"^not deleted .*")
    assert "GroupIdNotFoundException" in refusal


def test_client_whose_address_leads_to_another_cluster_starts_again(
    tmp_path: Path, classes: Path
) -> None:
    """Its first connection brings the metadata, the second is refused (KIP-1242)."""
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy())
        nodes = []
        for name in ("meant", "another"):
            listener = f"PLAINTEXT://127.0.0.1:{(port := free_port())}"
            settings = {
                "listeners": listener,
                "advertised.listeners": f"PLAINTEXT://{proxy.address}",
            }
            nodes.append(stack.enter_context(BrokerProcess(tmp_path / name, settings)))
            proxy.targets.append(("127.0.0.1", port))
        java = stack.enter_context(commands(proxy.address, classes, tmp_path))
        java.tell("send in one")
        java.await_said("API_VERSIONS response .*errorCode=129")
        java.await_said("Rebootstrap requested by server")
        assert not java.find("^sent")
        nodes[0].kill()  # with it the connection over which it would be asked again
        java.await_said("^sent one at 0$")
        assert versions_sent(java, "API_VERSIONS") == {5}
