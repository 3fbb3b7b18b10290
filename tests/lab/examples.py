"""How many examples a property test tries, where it is not as many as the profile says.

`make test` tries 25 of each, `make thorough` hundreds; see `conftest.py`. A property that takes
long has a share of nine and of hundreds.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

IS_THOROUGH = settings().max_examples >= 500
_USUAL = settings().max_examples if IS_THOROUGH else 9


def examples(share: float) -> settings:
    """Decorate a test with this: a slow property and one of many alike try less, a model more."""
    return settings(max_examples=max(2, round(_USUAL * share)))


def stride(nth: int) -> int:
    """Step of a `range` of cases: each `nth` of them; `make thorough` tries all."""
    return 1 if IS_THOROUGH else nth


def some_of(cases: Iterable[Any], every: int) -> list[Any]:
    """Parameters for `parametrize`: each `every`th case, and the others marked slow."""
    return [
        case if place % every == 0 else pytest.param(case, marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]


def some_pairs(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """Parameters for two names: each value with some of the other name; the rest marked slow."""
    these, those = list(first), list(second)
    kept = {(n % len(these), n % len(those)) for n in range(max(len(these), len(those)))}
    return [
        pytest.param(this, that, marks=() if (n, m) in kept else pytest.mark.slow)
        for n, this in enumerate(these)
        for m, that in enumerate(those)
    ]
