"""Hint about sent records that are older than their topic keeps."""

from horolog.cli.screen import say
from horolog.client import Client, NoAnswer
from horolog.clock import SystemClock
from horolog.errors import RequestRefused
from horolog.jobs.receiving import ReceivingTopic
from horolog.times import duration_text, format_time


class TooOldHint:
    """Warns once, on standard error, that retention will delete sent records at its next check."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._receiving: ReceivingTopic | None = None
        self._is_over = False

    def look(self, oldest_ms: int | None) -> None:
        """Compare the smallest timestamp of some sent records with what the topic keeps."""
        now_ms = SystemClock().now_ms()
        if self._is_over or oldest_ms is None or oldest_ms >= now_ms:
            return
        try:
            if self._receiving is None:
                self._receiving = ReceivingTopic.described(self._client, self._topic, 0)
            kept_from_ms = self._receiving.kept_from_ms(now_ms)
        except (RequestRefused, NoAnswer, ValueError):  # a hint; the broker may say no number
            kept_from_ms = None
        self._is_over = kept_from_ms is None or oldest_ms < kept_from_ms
        if kept_from_ms is not None and oldest_ms < kept_from_ms:
            say(
                f"a record of {format_time(oldest_ms)} is older than {self._topic} keeps records "
                f"(retention.ms is {duration_text(now_ms - kept_from_ms)}): retention deletes it "
                "at its next check, unless its segment has newer ones. "
                f"horolog topics alter {self._topic} -c retention.ms=-1 keeps it"
            )
