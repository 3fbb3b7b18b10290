"""Rights as Apache Kafka decides them: by its authorizer, and by each API for one right."""

from collections.abc import Iterator
from typing import Any

import pytest
import rights_matrix as matrix
from rights_lines import answers
from tools.golden.rights import kafka_answers, lines
from tools.peers.kafka import Kafka

from golden import answers as golden_answers


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: Any) -> Iterator[Kafka]:
    with Kafka(
        tmp_path_factory.mktemp("kafka"),
        settings=matrix.settings(f"User:{matrix.ADMIN};User:ANONYMOUS"),
        listeners={matrix.LISTENER: "SASL_PLAINTEXT"},
    ) as running:
        yield running


def test_random_entries_are_decided_as_by_kafka() -> None:
    asked = [line for seed in range(1_000, 1_300) for line in lines(seed, 60)]
    told = kafka_answers(asked)
    ours = list(answers(asked))
    differing = [
        (line, its, mine) for line, its, mine in zip(asked, told, ours, strict=True) if its != mine
    ]
    assert differing == []


def test_kafka_answers_each_right_as_it_is_kept(kafka: Kafka) -> None:
    told = matrix.told_by(kafka.address_of(matrix.LISTENER))
    assert matrix.differences(told, matrix.whole_of(golden_answers("rights-matrix"))) == []
