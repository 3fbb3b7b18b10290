"""Settings of sessions of Spark in tests."""

from collections.abc import Mapping
from typing import Final

# Code made for each query takes longer to compile than its few rows take to read.
FEW_ROWS: Final[Mapping[str, str | int | bool]] = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def few_rows_options() -> list[str]:
    """The same for `horolog spark` in a process of its own."""
    return [part for name, value in FEW_ROWS.items() for part in ("--conf", f"{name}={value}")]
