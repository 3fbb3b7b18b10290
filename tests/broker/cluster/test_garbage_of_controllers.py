"""Answers of controllers that cannot be: the node lives on, and goes on once they can."""

import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from joined_broker import JoinedBroker
from patience import eventually
from scripted_broker import HangUp, Raw
from scripted_controller import ScriptedController

from horolog.wire import ApiKey

UNKNOWN = {"error_code": 12345}
GARBAGE: list[Any] = [
    Raw(b"\x00\x00\x00\x04\xff\xff\xff\xff"),
    Raw(struct.pack(">i", 0x7FFFFFFF)),
    Raw(struct.pack(">i", -5)),
    b"\xff\xff\xff\xff\x0f" * 8,
    b"",
    UNKNOWN,
    HangUp(b"\x00\x00"),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize(
    "key", [ApiKey.BROKER_HEARTBEAT, ApiKey.FETCH, ApiKey.ASSIGN_REPLICAS_TO_DIRS], ids=str
)
def test_a_node_lives_on_with_garbage_of_controllers(
    tmp_path: Path, key: ApiKey, garbage: Any
) -> None:
    with (
        ScriptedController() as quorum,
        JoinedBroker(tmp_path / "1", quorum) as broker,
    ):
        left = [3]

        def lie(request: Any, usual: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                return None
            return {**usual(), **UNKNOWN} if garbage is UNKNOWN else garbage

        quorum.answers[key] = lie
        quorum.create_topic("t", [[1]])
        if key is ApiKey.ASSIGN_REPLICAS_TO_DIRS:
            known = quorum.image.topics["t"].partitions[0]
            nowhere = known._replace(
                directories=(UUID(int=0),), partition_epoch=known.partition_epoch + 1
            )
            quorum.append(nowhere)
        assert eventually(lambda: left[0] < 3)
        del quorum.answers[key]
        end = quorum.log.end
        assert eventually(lambda: broker.node.view.offset >= end)
        beats = len(quorum.asked(ApiKey.BROKER_HEARTBEAT))
        assert eventually(lambda: len(quorum.asked(ApiKey.BROKER_HEARTBEAT)) > beats)
        assert not broker.node.failed.done()
