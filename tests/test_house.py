import pytest
from tools import house


def test_only_doors_and_builders_call_a_writer_of_log_files() -> None:
    assert house.callers_of_writers() <= {*house.DOORS, *house.BUILDERS}


def test_each_door_and_builder_exists() -> None:
    assert {*house.DOORS, *house.BUILDERS} <= house.defined()


@pytest.mark.parametrize(("value", "says"), [(4, []), (5, []), (6, ["a: 6, limit 5"])])
def test_a_measure_above_its_limit_is_reported(value: int, says: list[str]) -> None:
    sentences = house.exceeded({"a": value}, {"a": (5, "")})
    assert [one.partition(". ")[0] for one in sentences] == says


def test_a_measure_without_a_row_is_reported() -> None:
    assert house.exceeded({"new": 1}, {}) == ["new: 1, and house.tsv has no row for it."]


def test_a_private_caller_of_a_writer_counts_as_its_public_callers() -> None:
    tree = house.ast.parse(
        "class Log:\n"
        "    def enter(self):\n        self._write()\n"
        "    def _write(self):\n        self._writer.append(1)\n"
        "    def other(self):\n        self.items.append(1)\n"
    )
    assert house.public_callers(tree, {"append"}) == {"Log.enter"}
