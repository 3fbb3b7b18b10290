"""Logins as Apache Kafka takes them: the same messages, right and wrong, at every step."""

from pathlib import Path

import pytest
from login_dialogues import LISTENER, SHORT, dialogues, settings
from running_broker import MakeBroker
from tools.peers.kafka import Kafka

LISTENERS = {LISTENER: "SASL_PLAINTEXT", SHORT: "SASL_PLAINTEXT"}
KNOWN = {
    "again by an unknown mechanism",
    *(f"SCRAM-SHA-{bits}, final a short proof" for bits in (256, 512)),
}
"""Dialogues that Apache Kafka ends without an answer; here the client is told."""


@pytest.mark.timeout(900)
def test_dialogues_are_those_of_kafka(make_broker: MakeBroker, tmp_path: Path) -> None:
    with Kafka(tmp_path, settings=settings(), listeners=LISTENERS) as kafka:
        addresses = {name: kafka.address_of(name) for name in LISTENERS}
        theirs = dialogues(addresses, kafka.bootstrap)
    names = {**LISTENERS, "PLAINTEXT": "PLAINTEXT"}
    broker = make_broker(
        **{
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in names.items()),
        },
        **settings(),
    )
    bound = {name: f"127.0.0.1:{it.port}" for name, it in zip(names, broker.bound, strict=True)}
    ours = dialogues(bound, bound["PLAINTEXT"])
    differing = {name: (ours[name], its) for name, its in theirs.items() if ours[name] != its}
    for name in KNOWN:
        mine, its = differing.pop(name)
        assert (mine[-1], its) == ("closed", [*mine[:-2], "closed"])
    assert differing == {}
