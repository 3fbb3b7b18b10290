"""How long does a broker of a cluster take from its start until it is unfenced?

With 1,000 partitions of three replicas that hold some records, after a clean stop and after a kill.
A broker is unfenced once the others name it as alive. After a kill the controllers wait until the
session of the killed process is over: that wait ends before the start that is measured.
"""

import contextlib
import time
from collections.abc import Callable

from bench import harness
from bench.cluster import ClusterSide, clusters, topic
from bench.sides import Side
from tools.cluster import ServerProcess

PARTITIONS = 1_000
RECORDS = 200_000
SESSION_S = 10.0


def is_alive(side: ClusterSide, node_id: int) -> bool:
    """True if the first broker names another one as alive."""
    return node_id in side.admin().list_topics(timeout=30).brokers


def restarted(end: Callable[[ServerProcess], None]) -> harness.Measure:
    """End the third broker, and start it again."""

    def measure(side: Side) -> harness.Numbers:
        assert isinstance(side, ClusterSide)
        node = side.node(3)
        end(node)
        while is_alive(side, 3):
            time.sleep(0.1)
        time.sleep(SESSION_S)
        started = time.perf_counter()
        node.start()
        while not is_alive(side, 3):
            time.sleep(0.02)
        return {"seconds": time.perf_counter() - started}

    return measure


def main() -> None:
    asked = harness.options(__doc__ or "")
    harness.require_peer()
    share = 4 if asked.quick else 1
    with clusters(asked) as sides, contextlib.ExitStack() as stack:
        for side in sides:
            partitions = PARTITIONS // share
            name = stack.enter_context(topic(side, [[1, 2, 3]] * partitions))
            given = {"records": RECORDS // share, "size": 1000, "settings": {}}
            given |= {"partitions": partitions}
            harness.run_client("librdkafka_produce", side, topic=name, **given)
        for work, end in (("a clean stop", ServerProcess.stop), ("a kill", ServerProcess.kill)):
            row = harness.Row(f"start to unfenced after {work}", "seconds", "0.5x Kafka's time")
            harness.compare(restarted(end), sides, asked, row, warm_s=0)


if __name__ == "__main__":
    main()
