"""Options of `write.format("horolog")`: those of Spark's Kafka sink, and horolog's own.

Names ignore case. `OPTIONS` says what each does; the option reference in the documents is
made from it and from `producer_settings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from horolog.errors import Misconfigured
from horolog.sources.option_values import flag, integer, one_of, refuse_misspelt, topic_name
from horolog.spark.write import producer_settings
from horolog.spark.write.producer_settings import Producing

OPTIONS = {
    "topic": "where all rows go, whatever the column `topic` says",
    "onInvalidTimestamp": "what becomes of records whose time the broker refuses "
    "(INVALID_TIMESTAMP, error 32): `fail` (default), `null` or `deadLetter`; our own",
    "deadLetterTopic": "where `onInvalidTimestamp=deadLetter` sends them; our own",
    "exactlyOnce": "`true`: each attempt at a task is a transaction, and one of each is committed "
    "(docs/exactly-once.md); `false` (default): at least once; our own",
    "exactlyOnceFrom": "the number of the first batch that a query writes with `exactlyOnce`, 0 by "
    "default: a later one is refused where the broker has no record of any; our own",
    "writeName": "what a batch that is written with `exactlyOnce` is known by, together with its "
    "number: a second one of the same name and number is taken for a repeat; our own",
    "writeBatch": "the number of the batch with `exactlyOnce` and `writeName`: 0 for a write by "
    "itself; in `foreachBatch` the number that the function is given, needed over Spark Connect "
    "and in threads; our own",
    "includeHeaders": "without effect, as in Spark's sink: the column `headers` is written where "
    "there is one",
}

_MOST_NAME_CHARACTERS = 200  # brokers take 256, with a query's id before it


class OnInvalidTimestamp(Enum):
    """Treatment of records whose time a broker refuses."""

    FAIL = "fail"
    """The task fails with a list of the records."""
    NULL = "null"
    """The records are written at the writer's clock."""
    DEAD_LETTER = "deadLetter"
    """The records are written to another topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write; without `topic` each row has its own."""

    producing: Producing
    topic: str | None = None
    on_invalid_timestamp: OnInvalidTimestamp = OnInvalidTimestamp.FAIL
    dead_letter_topic: str | None = None
    exactly_once: bool = False
    exactly_once_from: int = 0
    write_name: str | None = None
    write_batch: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Read the options of one write.

        Raises:
            Misconfigured: an option, its value, or a combination that no write can have.
        """
        given = {name.lower(): value for name, value in options.items()}
        refuse_misspelt(given, OPTIONS, producer_settings.OBEYED, cutoff=0.8)
        if "path" in given or "paths" in given:
            raise Misconfigured(
                "A write goes to a broker: give it option 'kafka.bootstrap.servers' and no path"
            )
        words = [policy.value for policy in OnInvalidTimestamp]
        policy = OnInvalidTimestamp(one_of(given, "onInvalidTimestamp", "fail", *words))
        dead_letters = _topic(given, "deadLetterTopic")
        topic = _topic(given, "topic")
        if (policy is OnInvalidTimestamp.DEAD_LETTER) is not (dead_letters is not None):
            raise Misconfigured(
                "Option 'onInvalidTimestamp' is 'deadLetter' where option 'deadLetterTopic' names "
                "a topic, and only there"
            )
        if topic is not None and topic == dead_letters:
            raise Misconfigured(f"Options 'topic' and 'deadLetterTopic' are both '{topic}'")
        flag(given, "includeHeaders", default=True)
        producing = Producing.parse(given)
        exactly_once = flag(given, "exactlyOnce", default=False)
        if exactly_once and not producing.idempotent:
            raise Misconfigured(
                "Option 'exactlyOnce' needs kafka.acks=all and kafka.enable.idempotence=true"
            )
        for option in ("exactlyOnceFrom", "writeName", "writeBatch"):
            if option.lower() in given and not exactly_once:
                raise Misconfigured(f"Option '{option}' has no effect without option 'exactlyOnce'")
        return cls(
            producing=producing,
            topic=topic,
            on_invalid_timestamp=policy,
            dead_letter_topic=dead_letters,
            exactly_once=exactly_once,
            exactly_once_from=integer(given, "exactlyOnceFrom", 0, least=0),
            write_name=_write_name(given),
            write_batch=integer(given, "writeBatch", 0, least=0) if "writebatch" in given else None,
        )

    def refuse_nameless_batch(self) -> None:
        """Refuse a batch, not of a stream, that is written exactly once without a name.

        Raises:
            Misconfigured: it is one.
        """
        if self.exactly_once and self.write_name is None:
            raise Misconfigured(
                "A batch that is written with option 'exactlyOnce' needs option 'writeName': under "
                "this name it is known when it is written again"
            )

    def refuse_batch_number(self) -> None:
        """Refuse a user's number for micro-batches of a stream, which Spark numbers.

        Raises:
            Misconfigured: there is one.
        """
        if self.write_batch is not None:
            raise Misconfigured(
                "Option 'writeBatch' is for a batch: Spark numbers the micro-batches of a stream"
            )


def _topic(given: Mapping[str, str], option: str) -> str | None:
    topic = given.get(option.lower())
    if topic is not None and not topic.strip():
        raise Misconfigured(f"Option '{option}' names no topic")
    return None if topic is None else topic_name(topic, option)


def _write_name(given: Mapping[str, str]) -> str | None:
    name = given.get("writename")
    if name is not None and (
        not name.strip() or not name.isprintable() or len(name) > _MOST_NAME_CHARACTERS
    ):
        raise Misconfigured(
            f"Option 'writeName' has 1 to {_MOST_NAME_CHARACTERS} printable characters"
        )
    return name
