import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horolog.jobs.questions.latency_sums import EXACT_MS, classes_of, spans_of

EDGES = [sign * ((1 << bit) + step) for bit in range(61) for step in (-1, 0, 1) for sign in (1, -1)]
SPANS = st.lists(
    st.one_of(st.sampled_from(EDGES), st.integers(-(1 << 61) + 1, (1 << 61) - 1)), min_size=1
)


@given(SPANS)
def test_a_class_stands_for_its_spans_within_one_percent(spans: list[int]) -> None:
    classes = classes_of(np.array(spans, np.int64))
    for span, found in zip(spans, spans_of(classes).tolist(), strict=True):
        assert abs(found - span) <= (0 if abs(span) < EXACT_MS else abs(span) / 100)
    order = np.argsort(spans, kind="stable")
    assert (np.diff(classes[order]) >= 0).all()


@given(SPANS)
def test_a_span_amid_a_class_is_of_it(spans: list[int]) -> None:
    classes = classes_of(np.array(spans, np.int64))
    assert (classes_of(spans_of(classes)) == classes).all()
