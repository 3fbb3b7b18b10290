"""What a source says to Spark before anything is read."""

from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType, TimestampType

from horolog.sources import columns
from horolog.spark.source.log_source import LogSource


def schema_of(directory: Path, names: str) -> StructType:
    return LogSource(CaseInsensitiveDict({"path": str(directory), "columns": names})).schema()


@pytest.mark.parametrize("name", columns.TYPES)
def test_a_column_has_the_type_of_its_name_whatever_the_session_calls_a_timestamp(
    tmp_path: Path, name: str
) -> None:
    (field,) = schema_of(tmp_path, name)
    assert (field.name, field.dataType.simpleString()) == (name, columns.TYPES[name])
    assert (columns.TYPES[name] == "timestamp") is isinstance(field.dataType, TimestampType)
    assert field.nullable
