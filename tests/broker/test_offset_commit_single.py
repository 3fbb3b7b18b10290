"""OffsetCommit requests for one partition, with and without being decoded by their schema."""

from typing import Any, NamedTuple

import pytest
from dispatched_client import DispatchedClient, without_decoding
from hypothesis import given
from hypothesis import strategies as st
from raw_connection import encoded
from running_broker import NOW_MS, MakeBroker, RunningBroker

from horolog.clock import ManualClock
from horolog.network.dispatching import Hangup
from horolog.network.peer import Peer
from horolog.wire.api import SUPPORTED, ApiKey
from horolog.wire.frame import request_prefix

VERSIONS = range(2, SUPPORTED[ApiKey.OFFSET_COMMIT].max + 1)


class Asked(NamedTuple):
    """One request."""

    version: int
    topic: str = "t"
    partition: int = 0
    group: str = "alone"
    generation: int = -1
    member: str = ""
    instance: str | None = None
    offset: int = 7
    metadata: str | None = "m"
    retention_ms: int = -1
    trailing: bytes = b""

    def frame(self, broker: RunningBroker, correlation_id: int = 5) -> bytes:
        """The request without its length."""
        known = broker.broker.topics.find(self.topic)
        partition = {
            "partition_index": self.partition,
            "committed_offset": self.offset,
            "committed_leader_epoch": 3,
            "committed_metadata": self.metadata,
        }
        topic = {"name": self.topic, "topic_id": known and known.topic_id}
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member,
            "group_instance_id": self.instance,
            "retention_time_ms": self.retention_ms,
            "topics": [{**topic, "partitions": [partition]}],
        }
        key = ApiKey.OFFSET_COMMIT
        body = encoded(key, self.version, fields) + self.trailing
        return request_prefix(key, self.version, correlation_id, "me", len(body))[4:] + body


@pytest.fixture(scope="module")
def broker(make_module_broker: MakeBroker) -> RunningBroker:
    broker = make_module_broker(clock=ManualClock(NOW_MS))
    broker.create_topic("t", partitions=2)
    return broker


requests = st.builds(
    Asked,
    st.sampled_from(VERSIONS),
    st.sampled_from(["t", "t", "missing", "__consumer_offsets"]),
    st.sampled_from([0, 0, 1, 2, -1, 2**31 - 1]),
    st.sampled_from(["alone", "other", "", "ï" * 200]),
    st.sampled_from([-1, -1, 0, 1]),
    st.sampled_from(["", "", "somebody"]),
    st.sampled_from([None, None, "static"]),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([None, "", "x", "x" * 4096, "x" * 4097]),
    st.sampled_from([-1, 0, 5, 2**63 - 1]),
    st.sampled_from([b"", b"", b"\0"]),
)


def stored(broker: RunningBroker, asked: Asked) -> Any:
    return broker.broker.groups.offsets.get(asked.group, asked.topic, asked.partition)


@given(asked=requests)
def test_a_client_with_the_shortcut_gets_the_same_answers_and_commits_the_same(
    broker: RunningBroker, asked: Asked
) -> None:
    results = []
    for shortcut in (True, False):
        side = DispatchedClient(broker, shortcut=shortcut)
        before = asked._replace(offset=1, metadata="before", trailing=b"", retention_ms=-1)
        side.give(before.frame(broker))
        results.append((side.give(asked.frame(broker)), stored(broker, asked)))
        side.close()
    assert results[0] == results[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_is_not_decoded(
    broker: RunningBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = DispatchedClient(broker)
    without_decoding(monkeypatch)
    asked = Asked(version, offset=version)
    assert isinstance(client.give(asked.frame(broker)), bytes)
    assert stored(broker, asked).committed == version
    client.close()


def test_a_commit_is_authorised_as_any_other(broker: RunningBroker) -> None:
    def authorise(peer: Peer, key: ApiKey) -> None:
        raise Hangup("You may no longer")

    client = DispatchedClient(broker, authorise=authorise)
    asked = Asked(9, group="refused")
    assert client.give(asked.frame(broker)) == "Hangup: You may no longer"
    assert stored(broker, asked) is None
    client.close()
