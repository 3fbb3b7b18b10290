"""One question, asked by polars and by SQL, of a broker and of its files: how many clicks an hour?

Needs `pip install 'horolog[polars,sql]'`. Run: python same_question.py
"""

from datetime import UTC, datetime, timedelta

import polars

from horolog.client import Client, Producer
from horolog.polars import scan_horolog
from horolog.sources import sql
from horolog.testing import Broker

NINE, HOUR = datetime(2026, 11, 20, 9, tzinfo=UTC), timedelta(hours=1)

CLICKS = polars.DataFrame(
    {
        "key": [f"user {number % 7}" for number in range(600)],
        "value": ["/"] * 600,
        # A click every 20 seconds; each tenth comes an hour late, behind later ones.
        "timestamp": [
            NINE + number * timedelta(seconds=20) - (0 if number % 10 else 1) * HOUR
            for number in range(600)
        ],
    }
)

QUERY = """
    select hour(timestamp) as hour, count(*) as clicks, count(distinct key) as users
    from clicks
    where timestamp >= '2026-11-20T09:00Z' and timestamp < '2026-11-20T11:00Z'
    group by hour order by hour
"""


def by_polars(source: str) -> list[tuple[int, int, int]]:
    """Hours with their clicks and users; the condition narrows what is read."""
    time = polars.col("timestamp")
    hours = (
        scan_horolog(source, "clicks")
        .filter(time >= NINE, time < NINE + 2 * HOUR)
        .group_by(hour=time.dt.hour())
        .agg(clicks=polars.len(), users=polars.col("key").n_unique())
    )
    return hours.sort("hour").collect().rows()


def by_sql(source: str) -> list[tuple[int, int, int]]:
    """The same by DuckDB."""
    return [tuple(row.values()) for row in sql(QUERY, source).to_pylist()]


if __name__ == "__main__":
    with Broker() as broker:
        with Client(broker.bootstrap_servers) as client, Producer(client) as producer:
            producer.send("clicks", CLICKS)
        for source in (broker.bootstrap_servers, str(broker.log_dir)):
            assert by_polars(source) == by_sql(source)
        for hour, clicks, users in by_sql(source):
            print(f"{hour}:00  {clicks} clicks of {users} users")
