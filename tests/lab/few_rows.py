"""Settings of sessions of Spark in tests."""

from collections.abc import Mapping
from typing import Final

# Code made for each query takes longer to compile than its few rows take to read. To plan again
# between stages takes longer than it saves. And for each column that Python makes, Spark asks the
# JVM several times, so that an error can name the line of the user's code.
FEW_ROWS: Final[Mapping[str, str | int | bool]] = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.sql.dataFrameDebugging.enabled": False,
}


def few_rows_options() -> list[str]:
    """The same for `horolog spark` in a process of its own."""
    return [part for name, value in FEW_ROWS.items() for part in ("--conf", f"{name}={value}")]
