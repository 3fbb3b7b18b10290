"""Keeps answers about the history of groups until their last page was asked for.

An answer is read from logs whole, and given in pages: so it is read once, not again for each page.
"""

from typing import Final

from horolog.history import AskGroupHistory, GroupHistory

_MOST: Final = 4
"""Number of kept answers. Each has at most `MOST_ENTRIES`, with cut texts."""


class RecentHistories:
    """Recent answers about group histories. For the event loop's thread only."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, AskGroupHistory], GroupHistory] = {}

    def following(self, group: str, ask: AskGroupHistory) -> GroupHistory | None:
        """Return the kept answer from `ask.start` on; None if the log has to be read.

        A question that begins at the first entry is about what the log has now.
        """
        kept = self._kept.get(_key(group, ask))
        if kept is None or ask.start <= 0 or ask[-2:] != (kept.end, kept.since):
            return None
        first = kept.end - len(kept.events)
        return kept._replace(events=kept.events[max(0, ask.start - first) :])

    def keep(self, group: str, ask: AskGroupHistory, answer: GroupHistory) -> None:
        """Keep an answer for its next pages, in place of the oldest one."""
        key = _key(group, ask)
        self._kept.pop(key, None)
        self._kept[key] = answer
        if len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]

    def forget(self, group: str, ask: AskGroupHistory) -> None:
        """Drop an answer whose last page was given."""
        self._kept.pop(_key(group, ask), None)


def _key(group: str, ask: AskGroupHistory) -> tuple[str, AskGroupHistory]:
    return group, ask._replace(start=0, end=None, since=None)
