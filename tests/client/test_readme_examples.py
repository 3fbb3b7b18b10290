"""The README's examples for polars, DuckDB and pandas."""

import re
from pathlib import Path
from typing import Any

from running_broker import RunningBroker

README = Path(__file__).resolve().parents[2] / "README.md"
EXAMPLES = dict(
    re.findall(r"```python\n# (polars|duckdb|pandas)\n(.*?)```", README.read_text(), re.DOTALL)
)


def run(name: str, broker: RunningBroker) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(EXAMPLES[name].replace("127.0.0.1:9092", broker.address), names)
    return names


def test_pandas(broker: RunningBroker) -> None:
    frame = run("pandas", broker)["frame"]
    assert frame[["partition", "key", "value", "offset"]].to_numpy().tolist() == [
        [0, b"a", b"1", 0]
    ]


def test_polars(broker: RunningBroker) -> None:
    frame = run("polars", broker)["frame"]
    assert frame.select("key", "value").rows() == [(b"a", b"1"), (b"b", b"2")]


def test_duckdb(broker: RunningBroker) -> None:
    assert run("duckdb", broker)["counts"] == [(b"a", 1)]
