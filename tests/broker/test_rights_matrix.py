"""What each API tells principals that have one right each, beside what Apache Kafka tells them."""

import rights_matrix as matrix
from running_broker import MakeBroker

from golden import answers
from horolog.broker import HANDLERS, NEEDS


def test_each_right_gives_what_it_gives_at_kafka(make_broker: MakeBroker) -> None:
    broker = make_broker(**matrix.OURS)
    theirs = matrix.whole_of(answers("rights-matrix"))
    assert matrix.differences(matrix.told_by(broker.address), theirs) == []


def test_every_api_has_a_row_of_what_it_needs() -> None:
    assert set(NEEDS) == set(HANDLERS)
