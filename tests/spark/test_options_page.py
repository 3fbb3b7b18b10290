from pathlib import Path

from horolog.sources import OBEYED as OF_CONSUMER
from horolog.sources import OPTIONS as OF_READS
from horolog.spark.options_page import options_page
from horolog.spark.write.options import OPTIONS as OF_WRITES
from horolog.spark.write.producer_settings import OBEYED as OF_PRODUCER

PAGE = Path(__file__).parents[2] / "docs" / "spark-options.md"


def test_the_page_of_options_is_fresh() -> None:
    assert PAGE.read_text() == options_page(), (
        "run: python -m horolog.spark.options_page > docs/spark-options.md"
    )


def test_the_page_has_a_row_for_every_option() -> None:
    rows = [line for line in options_page().splitlines() if line.startswith("| `")]
    for option in (
        *OF_READS,
        *OF_WRITES,
        *(f"kafka.{name}" for name in (*OF_CONSUMER, *OF_PRODUCER)),
    ):
        assert any(row.startswith(f"| `{option}` | ") for row in rows), option
    assert all(row.endswith(" |") for row in rows)
