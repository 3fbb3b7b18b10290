"""How many examples a property test tries: a share of what the profile allows.

`make test` tries few of each, `make thorough` hundreds; see `conftest.py`.
"""

from hypothesis import settings


def examples(share: float) -> settings:
    """Decorate a test with this: one of many alike tries less, a model more."""
    return settings(max_examples=max(2, round(settings().max_examples * share)))
