"""Windows of event time whose watermark handles times before 1970."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SHIFT_DAYS: Final = 5 * 146_097
"""2000 years: whole weeks, so that windows of days and weeks keep their limits."""

_SHIFT_MICROS: Final = SHIFT_DAYS * 86_400_000_000
_SHIFTED: Final = "_shifted"


def windowed(
    records: DataFrame, width: str, late: str, *aggregates: Column, time: str = "timestamp"
) -> DataFrame:
    """Aggregate a stream by windows of its event time, in any century.

    Spark's watermark begins at 1970, and what is earlier counts as late from the first micro-batch
    on: `withWatermark` and `window` drop it without a word. Here the watermark runs on times that
    are shifted by `SHIFT_DAYS`, and the windows are shifted back.

    Args:
        records: a stream; a DataFrame that is none is aggregated alike.
        width: of a window, as of Spark's `window`: "1 hour".
        late: how long a window waits for late records: "7 days". `late_max_ms` of an audit is how
            long that has to be, so that none is dropped.
        time: the column of the event time.

    Returns:
        `window` struct<start, end>, and the aggregates.
    """
    shifted = F.timestamp_micros(F.unix_micros(time) + F.lit(_SHIFT_MICROS))
    grouped = (
        records.withColumn(_SHIFTED, shifted)
        .withWatermark(_SHIFTED, late)
        .groupBy(F.window(_SHIFTED, width).alias(_SHIFTED))
        .agg(*aggregates)
    )
    ends = [
        F.timestamp_micros(F.unix_micros(f"{_SHIFTED}.{end}") - F.lit(_SHIFT_MICROS)).alias(end)
        for end in ("start", "end")
    ]
    others = [name for name in grouped.columns if name != _SHIFTED]
    return grouped.select(F.struct(*ends).alias("window"), *others)
