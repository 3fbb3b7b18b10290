"""Repeats requests after retriable errors, until a deadline."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from horolog.client.brokers import Brokers
from horolog.client.connection import NoAnswer
from horolog.client.deadline import Deadline
from horolog.errors import ErrorCode, RequestRefused

T = TypeVar("T")

_logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

FIRST_CONTACT_MS: Final = 3_000
"""Time to wait for a first response: enough for a broker that is starting. A wrong address is
reported soon."""

UNKNOWN_TOPIC_MS: Final = 2_000
"""Time to retry for an unknown topic. Other brokers learn of a new topic within a moment."""

SILENT_MS: Final = 3_000
"""Time after which a repeated call logs the reason. An election takes less."""

LOST_ANSWERS: Final = 3
"""Lost responses after which a call fails. A restart of a broker loses one or two; a broker that
closes the connection each time does not accept the request."""

_UNKNOWN: Final = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})
_CARRIED_OUT: Final = frozenset(
    {ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append}
)
_HOPELESS: Final = frozenset({ErrorCode.corrupt_message})  # Kafka calls it retriable


class RetriedCalls:
    """Part of a client whose calls are repeated until a deadline.

    Each call raises `RequestRefused` when a broker refuses, and `NoAnswer` when none answers.
    """

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.config = brokers.config

    def _persist(
        self,
        attempt: Callable[[Deadline], T],
        *,
        may_repeat: bool = True,
        extra_ms: int = 0,
    ) -> T:
        """Call `attempt` until it succeeds, fails for good, or the time is over.

        `may_repeat` says that it does no harm if a broker carries the request out twice; where it
        does, a request that was sent is not sent again when its answer is lost.

        Raises:
            RequestRefused: a broker's refusal, the last one where it could have changed.
            NoAnswer: no broker responded.
        """
        deadline = Deadline.after_ms(self.config.timeout_ms + extra_ms)
        first_contact = deadline.no_later_than_ms(FIRST_CONTACT_MS)
        # Counted from the first refusal: the request before it may have waited for the creation.
        unknown_topic: Deadline | None = None
        silent: Deadline | None = deadline.no_later_than_ms(SILENT_MS)
        pause_s = FIRST_PAUSE_S
        lost_answers = 0
        reason: RequestRefused | NoAnswer | None = None
        while True:
            try:
                return attempt(deadline)
            except RequestRefused as error:
                if not error.code.retriable or error.code in _HOPELESS:
                    raise
                if not may_repeat and error.code in _CARRIED_OUT:
                    raise
                limit = deadline
                if error.code in _UNKNOWN:
                    if unknown_topic is None:
                        unknown_topic = deadline.no_later_than_ms(UNKNOWN_TOPIC_MS)
                    limit = unknown_topic
                if limit.left_s() <= pause_s:
                    raise
                reason = error
            except NoAnswer as error:
                if error.sent and not may_repeat:
                    raise NoAnswer(f"{error}; it may have been carried out", sent=True) from error
                if reason is not None and deadline.left_s() <= 0:
                    raise reason from error  # why it took so long says more than that it did
                lost_answers += error.sent
                limit = deadline if self.brokers.was_reached else first_contact
                if limit.left_s() <= pause_s or lost_answers >= LOST_ANSWERS:
                    raise
                reason = error
            if self.brokers.is_interrupted:  # no caller waits any more: a retry would outlive it
                raise reason
            self.brokers.forget()
            if silent is not None and silent.left_s() <= pause_s:
                silent = None
                _logger.warning("%s; asking again for up to %.0f s", reason, limit.left_s())
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
