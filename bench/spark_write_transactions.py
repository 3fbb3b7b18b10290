"""What exactly once costs where Spark writes to Apache Kafka: in transactions, or at least once.

    python -m bench.spark_write_transactions [--quick] [--runs N] [--json FILE]

Both sides are horolog's sink, to four partitions of one Apache Kafka, in one Spark on two threads;
rows and ways are those of `bench.spark_write`.
"""

import tempfile
from pathlib import Path
from typing import Any

from bench.harness import Options, options
from bench.sides import kafka
from bench.spark_session import spark_with_kafka
from bench.spark_write import Target, compare_once, compare_streams_once, rows_of


def main() -> None:
    """Print the table."""
    asked = options(__doc__.splitlines()[0])
    spark = spark_with_kafka("spark_write_transactions").spark
    size = (300 << 20) if asked.quick else (1000 << 20)
    with (
        tempfile.TemporaryDirectory(prefix="spark-write-") as base,
        kafka(directory=Path(base)) as side,
    ):
        for value_bytes in (100, 1000):
            tables(spark, Target(side), value_bytes, size // value_bytes, asked)
    spark.stop()


def tables(spark: Any, target: Target, value_bytes: int, count: int, asked: Options) -> None:
    """The rows of one size."""
    frame = rows_of(spark, count, value_bytes)
    work = f"{value_bytes} B records written to Kafka"
    compare_once(frame, target, count, work, asked)
    with tempfile.TemporaryDirectory(prefix="spark-write-") as files:
        frame.write.mode("overwrite").parquet(files)
        compare_streams_once(spark, Path(files), target, count, f"{work} as a stream", asked)


if __name__ == "__main__":
    main()
