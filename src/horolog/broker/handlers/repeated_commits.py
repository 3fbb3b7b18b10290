"""Commits of the same partitions by the same member, one after the other, over one connection.

A consumer commits the partitions that it was assigned again and again. From the third time on the
request is not read: it differs from the one before in offsets alone (`wire.offset_commit`). Its
records are those of the one before with other numbers (`groups.commit_records`), and so is its
answer. What may have changed since is asked at each: whether the client may, the topics are the
same, the member has its generation, and the log takes the records at once.
"""

from functools import partial
from typing import Final

from horolog.broker.authorisation import Authorise
from horolog.broker.broker import Broker
from horolog.broker.handlers.committing import commit_rows
from horolog.broker.handlers.group_errors import commit_error_code
from horolog.errors import HorologError
from horolog.groups.commit_records import CommitRecords
from horolog.groups.rows import OffsetRow
from horolog.groups.values import Committer
from horolog.metadata.topics import Topic
from horolog.network.peer import Peer
from horolog.network.reply import Reply
from horolog.wire.api import ApiKey
from horolog.wire.offset_commit import CommitForm, CommitRequest, committed, read_commit

_MOST_FRAME_BYTES: Final = 4096
_KEPT_BYTES: Final = 2048  # of a commit, beside its request and its records


class RepeatedCommit:
    """A commit of one client, which it sends again with other offsets."""

    __slots__ = ("__weakref__", "_by", "_form", "_group_id", "_records", "_topics")

    def __init__(self, form: CommitForm, topics: list[Topic]) -> None:
        """Keep the form of requests without metadata and expiry time, and their topics."""
        request = form.request
        self._form = form
        self._topics = topics
        self._group_id = request.group_id
        self._by = Committer(request.member_id, request.instance_id, request.generation)
        rows = commit_rows(request, topics, 0)
        self._records = CommitRecords(rows, form.places, form.width)

    @property
    def held_bytes(self) -> int:
        """The approximate memory that it takes."""
        return _KEPT_BYTES + 4 * self._form.size + 2 * len(self._records)

    def answer(
        self, broker: Broker, authorise: Authorise, peer: Peer, frame: bytes
    ) -> Reply | None:
        """Commit the offsets of a request, and answer it.

        None, without any effect, if it is another commit, or cannot be done at once.
        """
        form, records = self._form, self._records
        if not form.fits(frame):
            return None
        find = broker.topics.find
        for topic in self._topics:
            if find(topic.name) is not topic:
                return None
        authorise(peer, ApiKey.OFFSET_COMMIT)
        now_ms = broker.clock.now_ms()
        try:
            is_committed = broker.groups.commit_again(
                self._group_id,
                self._by,
                records.of(frame, now_ms),
                records.count,
                now_ms,
                form.partitions,
                partial(_rows, frame, self._topics, now_ms),
            )
        except HorologError as error:
            request = form.request_of(frame)
            code = commit_error_code(error, request.version)
            return (committed(request, [code] * len(self._topics)),)
        return (form.committed(frame),) if is_committed else None


def keep(
    broker: Broker, peer: Peer, frame: bytes, request: CommitRequest, topics: list[Topic]
) -> None:
    """Keep a request whose offsets are all committed, once it is the second of its form."""
    before, peer.last_commit = peer.last_commit, None
    if len(frame) > _MOST_FRAME_BYTES or request.retention_ms >= 0:
        return
    if any(map(any, (topic.metadata for topic in request.topics))):
        return
    peer.last_commit = frame
    if not isinstance(before, bytes) or len(before) != len(frame):
        return
    form = CommitForm(request, frame)
    if form.fits(before):
        commit = RepeatedCommit(form, topics)
        if broker.kept_commits.keep(commit, commit.held_bytes):
            peer.last_commit = commit


def _rows(frame: bytes, topics: list[Topic], now_ms: int) -> list[OffsetRow]:
    request = read_commit(frame)
    assert request is not None, "it is of the form of one that was read"
    return commit_rows(request, topics, now_ms)
