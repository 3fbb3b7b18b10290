"""Passwords of the source show in no plan, error, progress or checkpoint of a real Spark."""

from pathlib import Path
from typing import Any

import pytest
import rights_matrix as matrix
from running_broker import MakeBroker
from secrets_kept import note, password, shows_a_password

pytestmark = pytest.mark.spark


def options(address: str, secret: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": address,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{matrix.ADMIN}" password="{secret}";'
        ),
    }


def shown(frame: Any) -> str:
    """All that Spark says of a plan."""
    frame.explain(mode="extended")
    frame.explain(mode="formatted")
    execution = frame._jdf.queryExecution()
    return f"{frame} {execution.toString()} {execution.logical().toJSON()}"


def test_passwords_are_in_no_plan_error_progress_or_checkpoint(
    spark: Any, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(**matrix.OURS)
    broker.create_topic("t")
    good = options(broker.address, matrix.PASSWORD(matrix.ADMIN))
    frame = spark.read.format("horolog").options(**good, subscribe="t").load()
    assert frame.count() == 0
    note(shown(frame), "a plan")
    rows = spark.createDataFrame([(b"v",)], "value binary")
    rows.write.format("horolog").options(**good, topic="t").mode("append").save()
    assert frame.count() == 1

    stream = spark.readStream.format("horolog").options(
        **good, subscribe="t", startingOffsets="earliest"
    )
    query = (
        stream.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    note(str(query.lastProgress), "progress")
    note(query._jsq.toString(), "a query")

    wrong = options(broker.address, password("wrong"))
    with pytest.raises(Exception, match="Invalid username or password") as refused:
        spark.read.format("horolog").options(**wrong, subscribe="t").load().collect()
    assert not shows_a_password(str(refused.value))
