"""A streaming query on a real Spark that writes Parquet files."""

import json
from pathlib import Path
from typing import Any


class Run:
    """A query that keeps its checkpoint, and what it wrote, in one directory."""

    def __init__(self, spark: Any, frame: Any, directory: Path) -> None:
        self.spark, self.frame, self.directory = spark, frame, directory

    def now(self, **trigger: Any) -> Any:
        writer = self.frame.writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        query = writer.trigger(**(trigger or {"availableNow": True}))
        return query.start(str(self.directory / "out"))

    def to_the_end(self, **trigger: Any) -> list[int]:
        """Run until there is nothing to read; all values so far."""
        query = self.now(**trigger)
        try:
            query.awaitTermination() if not trigger else query.processAllAvailable()
        finally:
            query.stop()
        return self.values()

    def values(self) -> list[int]:
        rows = self.spark.read.parquet(str(self.directory / "out")).select("value").collect()
        return sorted(int(bytes(row.value)) for row in rows)

    def offsets(self) -> list[dict[str, Any]]:
        """What the checkpoint says of each micro-batch."""
        directory = self.directory / "checkpoint" / "offsets"
        paths = sorted((path for path in directory.iterdir() if path.name.isdigit()), key=by_number)
        return [json.loads(path.read_text().splitlines()[-1]) for path in paths]


def by_number(path: Path) -> int:
    return int(path.name)
