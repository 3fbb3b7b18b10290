"""A program for `killed_streams`: a stream that writes exactly once, and stops once.

    python killed_transactions.py BOOTSTRAP DIRECTORY FATE MIN_PARTITIONS [DEAD_LETTER_TOPIC]

What is to be killed touches `DIRECTORY/now` and hangs, at its first time only. With a topic for
dead letters every fifth row has a time of the year 2100, which brokers refuse.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from horolog.client import Transaction, Transactions
from horolog.spark import session
from horolog.spark.source.log_source import LogSource
from horolog.spark.write.sink import LogStreamWriter
from horolog.spark.write.task import TaskCommitMessage

BATCH = 1  # whose driver or task is killed
PATIENT: dict[str, str | int | bool] = {
    "spark.python.authenticate.socketTimeout": "20m",
    "spark.network.timeout": "20m",
}


class Hanging(LogStreamWriter):
    """Writes as horolog's writer, up to what `fate` says."""

    fate: str
    directory: str

    def _is_first(self) -> bool:
        try:
            os.close(os.open(f"{self.directory}/now", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _hang(self) -> None:
        if self._is_first():
            time.sleep(60)  # the driver is killed meanwhile
            os._exit(1)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        appended = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        is_due = context.getLocalProperty("streaming.sql.batchId") == str(BATCH)
        if self.fate == "a task is killed after its rows" and is_due and self._is_first():
            os.kill(os.getpid(), signal.SIGKILL)
        return appended

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,
    ) -> None:
        if batchId != BATCH:
            super().commit(messages, batchId)
            return
        if self.fate == "the driver is killed before its commit":
            self._hang()
        if self.fate == "the driver is killed between two commits":
            plain, ended = Transactions.end, 0

            def end(client: Transactions, transaction: Transaction, *, commit: bool) -> None:
                nonlocal ended
                ended += 1
                if ended == 3:  # the record of the batch, and one task
                    self._hang()
                plain(client, transaction, commit=commit)

            Transactions.end = end  # type: ignore[assignment]
        super().commit(messages, batchId)
        if self.fate == "the driver is killed after its commit":
            self._hang()


def source_of(fate: str, directory: str) -> type[LogSource]:
    class HangingSource(LogSource):
        @classmethod
        def name(cls) -> str:
            return "hanging"

        def streamWriter(self, schema: Any, overwrite: bool) -> LogStreamWriter:
            plain = super().streamWriter(schema, overwrite)
            writer = Hanging(plain.columns, plain.options)
            writer.fate, writer.directory = fate, directory
            return writer

    return HangingSource


AT_MS = "if(cast(cast(value as string) as int) % 5 = 0, 4102444800000L, 1000L) timestampMs"


def main(bootstrap: str, directory: str, fate: str, tasks: str, dead: str | None = None) -> None:
    spark = session("killed transactions", master="local[2,4]", **PATIENT)
    spark.dataSource.register(source_of(fate, directory))
    reader = spark.readStream.format("horolog").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.options(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="900")
    rows = reader.option("minPartitions", tasks).load()
    writer = rows.selectExpr("value", *([AT_MS] if dead else [])).writeStream
    if dead:
        writer = writer.options(onInvalidTimestamp="deadLetter", deadLetterTopic=dead)
    writer = writer.format("hanging").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", "out").option("exactlyOnce", "true")
    writer = writer.option("checkpointLocation", str(Path(directory, "checkpoint")))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # a worker is gone: Spark would wait for it
