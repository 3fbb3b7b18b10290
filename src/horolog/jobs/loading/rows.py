"""Rules by which a row of a table becomes a record: time, key, value, headers, partition."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as fn
from pyspark.sql.pandas.functions import arrow_udf

from horolog.errors import Misconfigured
from horolog.record.partitioning import partitions_of_keys
from horolog.record.timestamps import NO_TIMESTAMP

UNITS: Final = ("s", "ms", "us", "ns")
ENCODINGS: Final = ("json", "string", "binary")
COLUMNS: Final = ("key", "value", "headers", "timestamp_ms")
PARTITION: Final = "partition"
_ORDER = "order_"
_PER_MS = {"us": 1_000, "ns": 1_000_000}
_INTEGERS = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
_JSON = {"timeZone": "UTC", "ignoreNullFields": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """Rules of one load; the options of `bootstrap` describe them."""

    time: str | None = None
    unit: str | None = None
    zone: str | None = None
    key: tuple[str, ...] = ()
    value: str = "json"
    value_columns: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    tombstone_when: str | None = None
    partition_column: str | None = None
    order_by: tuple[str, ...] = ()

    def check(self, frame: DataFrame) -> None:
        """Refuse rules that the table cannot follow.

        Raises:
            Misconfigured: a column is not there or has another type, or rules contradict.
        """
        named = [
            *self.key,
            *self.value_columns,
            *self.order_by,
            *(column for _, column in self.headers),
        ]
        named += [column for column in (self.time, self.partition_column) if column is not None]
        for name in named:
            if name not in frame.columns:
                raise Misconfigured(
                    f"the table has no column {name}; there are {', '.join(frame.columns)}"
                )
        if len(set(frame.columns)) < len(frame.columns):
            raise Misconfigured("the table has two columns of one name: rename one")
        if self.value not in ENCODINGS:
            raise Misconfigured(f"value is {self.value}: there are {', '.join(ENCODINGS)}")
        if self.value != "json" and len(self.value_columns) != 1:
            raise Misconfigured(f"value={self.value} takes one column: name it in value-columns")
        self._check_time(frame)
        kinds = {field.name: field.dataType for field in frame.schema.fields}
        for name in (*self.key, *(column for _, column in self.headers)):
            if isinstance(kinds[name], types.ArrayType | types.MapType | types.StructType):
                raise Misconfigured(f"{name} is {kinds[name].simpleString()}, and no text")
        if self.value == "binary" and not isinstance(
            kinds[self.value_columns[0]], types.BinaryType | types.StringType
        ):
            raise Misconfigured(
                f"{self.value_columns[0]} is {kinds[self.value_columns[0]].simpleString()}, not "
                "binary: write value=string for its text"
            )
        if self.partition_column is not None and not isinstance(
            kinds[self.partition_column], _INTEGERS
        ):
            raise Misconfigured(f"{self.partition_column} holds no integers, and names partitions")

    def _check_time(self, frame: DataFrame) -> None:
        if self.time is None:
            if self.unit or self.zone:
                raise Misconfigured("unit and tz are of a time column: give time")
            return
        kind = frame.schema[self.time].dataType
        is_integer = isinstance(kind, _INTEGERS)
        if is_integer and self.unit not in UNITS:
            raise Misconfigured(
                f"{self.time} holds integers: say their unit, with unit: one of {', '.join(UNITS)}"
            )
        if not is_integer and self.unit is not None:
            raise Misconfigured(f"{self.time} is {kind.simpleString()}, which has no unit")
        if isinstance(kind, types.TimestampNTZType) is not (self.zone is not None):
            raise Misconfigured(
                f"{self.time} has times without a zone: say which they are in, with tz"
                if self.zone is None
                else f"{self.time} is {kind.simpleString()}, whose times need no tz"
            )
        if not is_integer and not isinstance(
            kind, types.TimestampType | types.TimestampNTZType | types.DateType
        ):
            raise Misconfigured(
                f"{self.time} is {kind.simpleString()}: a time is a timestamp, a date or an "
                "integer; cast it first"
            )

    def records(self, frame: DataFrame, partitions: int, now_ms: int) -> DataFrame:
        """Return the rows as records, with `COLUMNS`, `PARTITION` and columns to order them by.

        A time that cannot be said in milliseconds is null. Computed lazily.
        """
        key = self._key(frame)
        order = [_of(name).alias(f"{_ORDER}{place}") for place, name in enumerate(self.order_by)]
        records = frame.select(
            key.alias("key"),
            self._value(frame).alias("value"),
            self._headers().alias("headers"),
            self._time_ms(frame, now_ms).alias("timestamp_ms"),
            *order,
            *([] if self.partition_column is None else [_of(self.partition_column).alias("asked")]),
        )
        keyless = fn.pmod(fn.xxhash64("value", "timestamp_ms"), fn.lit(partitions)).cast("int")
        if self.partition_column is not None:
            asked = fn.col("asked")
            is_there = asked.between(0, partitions - 1)
            partition = fn.when(is_there, asked.cast("int")).otherwise(fn.lit(None).cast("int"))
        elif self.key:
            partition = fn.coalesce(_partitions_of(partitions)(fn.col("key")), keyless)
        else:
            partition = keyless
        return records.withColumn(PARTITION, partition).drop("asked")

    def ordered(self, records: DataFrame, partitions: int) -> DataFrame:
        """Put the records of each partition into one task, in the order of their offsets."""
        order = [f"{_ORDER}{place}" for place in range(len(self.order_by))]
        return (
            records.repartition(partitions, PARTITION)
            .sortWithinPartitions(PARTITION, *(order or ["timestamp_ms"]))
            .select(*COLUMNS, PARTITION)
        )

    def _time_ms(self, frame: DataFrame, now_ms: int) -> Column:
        if self.time is None:
            return fn.lit(now_ms).cast("bigint")
        column, kind = _of(self.time), frame.schema[self.time].dataType
        match kind:
            case types.TimestampType():
                return _floored(fn.unix_micros(column), 1_000)
            case types.DateType():
                return fn.unix_date(column).cast("bigint") * fn.lit(86_400_000)
            case types.TimestampNTZType():
                zone = str(self.zone).replace("'", "")
                quoted = self.time.replace("`", "``")
                micros = (
                    "timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', "
                    f"convert_timezone('{zone}', 'UTC', `{quoted}`))"
                )
                return _floored(fn.expr(micros), 1_000)
        column = column.cast("bigint")
        if self.unit == "s":
            return fn.try_multiply(column, fn.lit(1_000).cast("bigint"))
        return column if self.unit == "ms" else _floored(column, _PER_MS[str(self.unit)])

    def _key(self, frame: DataFrame) -> Column:
        if not self.key:
            return fn.lit(None).cast("binary")
        if len(self.key) == 1:
            return _bytes(frame, self.key[0])
        return fn.to_json(fn.struct(*(_of(name) for name in self.key)), _JSON).cast("binary")

    def _value(self, frame: DataFrame) -> Column:
        if self.value == "json":
            names = self.value_columns or tuple(frame.columns)
            value = fn.to_json(fn.struct(*(_of(name) for name in names)), _JSON).cast("binary")
        else:
            value = _bytes(frame, self.value_columns[0])
        if self.tombstone_when is None:
            return value
        is_gone = fn.coalesce(fn.expr(self.tombstone_when), fn.lit(False))
        return fn.when(~is_gone, value)

    def _headers(self) -> Column:
        if not self.headers:
            return fn.lit(None).cast("array<struct<key:string,value:binary>>")
        headers = [
            fn.struct(
                fn.lit(name).alias("key"), _of(column).cast("string").cast("binary").alias("value")
            )
            for name, column in self.headers
        ]
        return fn.filter(fn.array(*headers), lambda header: header["value"].isNotNull())


def is_no_time(times: Column) -> Column:
    """True where a time is -1 ms, which means no time in Kafka's formats."""
    return times == fn.lit(NO_TIMESTAMP)


def _of(name: str) -> Column:
    return fn.col("`" + name.replace("`", "``") + "`")


def _bytes(frame: DataFrame, name: str) -> Column:
    """Return the bytes of a binary column, or of the text of any other."""
    column = _of(name)
    if isinstance(frame.schema[name].dataType, types.BinaryType):
        return column
    return column.cast("string").cast("binary")


def _floored(column: Column, unit: int) -> Column:
    """Divide a column and round down, so that times before 1970 are exact, too."""
    per = fn.lit(unit).cast("bigint")
    is_between = (column % per) < 0
    return fn.call_function("div", column, per) - fn.when(is_between, 1).otherwise(0)


def _partitions_of(count: int) -> Callable[[Column], Column]:
    """Return a function that gives keys the partitions of Kafka's clients (murmur2)."""

    def partitions(keys: pa.Array) -> pa.Array:
        keys = keys.cast(pa.large_binary())
        _, ends, data = keys.buffers()
        taken = np.frombuffer(ends, np.int64, keys.offset + len(keys) + 1)[keys.offset :]
        content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        numbers = partitions_of_keys(taken, content, count) if len(keys) else np.empty(0, np.int32)
        return pa.array(numbers, mask=keys.is_null().to_numpy(zero_copy_only=False))

    make: Any = arrow_udf  # its stubs want an evaluation type, which it takes from the annotations
    return cast(Callable[[Column], Column], make(partitions, types.IntegerType()))
