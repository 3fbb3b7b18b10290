"""A hint about records that are older than their topic keeps them."""

from contextlib import suppress
from typing import Final

from horolog.cli.screen import say
from horolog.client import Client, NoAnswer, ResourceType
from horolog.clock import Clock, SystemClock
from horolog.errors import RequestRefused
from horolog.times import duration_text, format_time

_NAMES: Final = ("retention.ms", "cleanup.policy", "message.timestamp.type", "horolog.retention.by")


class TooOldHint:
    """Says once, on standard error, that retention deletes what is sent at its next check."""

    def __init__(self, client: Client, topic: str, clock: Clock | None = None) -> None:
        self._client = client
        self._topic = topic
        self._clock = SystemClock() if clock is None else clock
        self._limit_ms: int | None = None
        self._is_over = False

    def look(self, oldest_ms: int | None) -> None:
        """Look at the smallest timestamp of some records that were sent."""
        now_ms = self._clock.now_ms()
        if self._is_over or oldest_ms is None or oldest_ms >= now_ms:
            return
        if self._limit_ms is None:
            self._limit_ms = self._limit()
        if self._limit_ms is None:
            self._is_over = True
        elif oldest_ms < now_ms - self._limit_ms:
            self._is_over = True
            say(
                f"a record of {format_time(oldest_ms)} is older than {self._topic} keeps records "
                f"(retention.ms is {duration_text(self._limit_ms)}): retention deletes it at its "
                "next check, unless its segment has newer ones. "
                f"horolog topics alter {self._topic} -c retention.ms=-1 keeps it"
            )

    def _limit(self) -> int | None:
        """How old records may become by their own timestamps; None without a limit."""
        resource = (ResourceType.TOPIC, self._topic)
        values: dict[str, str | None] = {}
        with suppress(RequestRefused, NoAnswer):  # it is a hint
            found = self._client.describe_configs([resource], names=_NAMES)[resource]
            values = {name: entry.value for name, entry in found.items()}
        text = values.get("retention.ms") or ""
        if (
            not text.isdecimal()
            or "delete" not in (values.get("cleanup.policy") or "delete")
            or values.get("message.timestamp.type") == "LogAppendTime"
            or values.get("horolog.retention.by", "create-time") != "create-time"
        ):
            return None
        return int(text)
