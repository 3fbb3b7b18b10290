"""OffsetCommit requests decoded by hand, and their answers, because commits are hot.

Nearly all requests name partitions without metadata, where the bytes of each have the same length.
So all partitions of a topic are unpacked at once, into columns; with metadata they are read one by
one. The answer names topics in the bytes of the request. What is of another form, malformed or not,
is None here, and is left to the reader of its schema: tagged fields, a name beyond what a topic may
have, bytes at the end.

A client that commits the same partitions again sends the same bytes, but for the correlation id,
offsets and leader epochs: a `CommitForm` compares all others at once, and nothing is read again.
"""

from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from horolog.wire.single_partition import (
    LONGEST_COMPACT,
    LONGEST_NAME,
    REQUEST_HEAD,
    TEXT_LENGTH,
    WRONG,
    read_topic_id,
)

__all__ = [
    "MOST_PARTITIONS",
    "CommitForm",
    "CommitRequest",
    "CommittedTopic",
    "committed",
    "read_commit",
]

MOST_PARTITIONS: Final = 1000
"""Of a request that is read here: more take too long for the event loop."""
_FEW: Final = 3  # that are read sooner one by one

# Generation, length of the member id.
_MEMBER: Final = Struct(">ih")
_FLEXIBLE_MEMBER: Final = Struct(">iB")
_RETENTION: Final = Struct(">q")
_COUNT: Final = Struct(">i")

_CORRELATION: Final = slice(4, 8)
_INDEX_BYTES: Final = 4
_WITH_EPOCH: Final = 6
_FLEXIBLE: Final = 8
_BY_ID: Final = 10
_ID_SIZE: Final = 16


class _RequestForm(NamedTuple):
    """How partitions follow one another in the request and in the answer."""

    fields: Struct
    """Index, offset, from version 6 on the leader epoch, length of the metadata."""
    plain: Struct
    """A whole partition without metadata; in flexible versions the number of tags is the last."""
    no_metadata: frozenset[int]
    """The lengths of metadata that is null or empty."""
    answer: Struct
    """The answer up to its topics: length, correlation id."""
    answered: Struct
    """A partition in the answer: index, error code."""
    tags: bytes
    """None of a partition, a topic and an answer, where these have any."""


_PLAIN: Final = Struct(">iqh")
_PLAIN_V6: Final = Struct(">iqih")
_LENGTHS: Final = frozenset((-1, 0))
_V2: Final = _RequestForm(_PLAIN, _PLAIN, _LENGTHS, Struct(">ii"), Struct(">ih"), b"")
_V3: Final = _V2._replace(answer=Struct(">ii4x"))  # with the throttle time
_V6: Final = _V3._replace(fields=_PLAIN_V6, plain=_PLAIN_V6)
_V8: Final = _RequestForm(
    Struct(">iqiB"), Struct(">iqiBB"), frozenset((0, 1)), Struct(">ii5x"), Struct(">ihx"), b"\0"
)
_FORMS: Final = (_V2,) * 3 + (_V3,) * 3 + (_V6,) * 2 + (_V8,) * 3


class CommittedTopic(NamedTuple):
    """The partitions of a topic, in columns."""

    name: str
    """Empty from version 10 on, where the topic is named by its id."""
    topic_id: UUID | None
    head: bytes
    """The name or id, and the number of partitions, in the bytes of the request."""
    partitions: tuple[int, ...]
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    """-1 before version 6."""
    metadata: tuple[str, ...]
    """Empty where it is null."""


class CommitRequest(NamedTuple):
    """An OffsetCommit request, from version 2."""

    version: int
    correlation_id: int
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    """-1 from version 5 on."""
    topics: list[CommittedTopic]


_Group: TypeAlias = tuple[str, int, str, str | None, int]
_Columns: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[str, ...]]
_new = tuple.__new__  # a named tuple's own takes three times as long


class CommitForm:
    """All requests that differ from one in correlation id, offsets and leader epochs alone."""

    __slots__ = (
        "_answer",
        "_fixed",
        "_mask",
        "partitions",
        "places",
        "request",
        "size",
        "width",
    )

    def __init__(self, request: CommitRequest, frame: bytes) -> None:
        """Of a request that was read, without metadata, and its frame."""
        self.request = request
        form, topics = _FORMS[request.version], request.topics
        tags, stride = len(form.tags), form.plain.size
        at = (
            len(frame)
            - tags
            - sum(len(each.head) + len(each.partitions) * stride + tags for each in topics)
        )
        mask = bytearray(b"\xff" * len(frame))
        mask[_CORRELATION] = bytes(4)
        width = 8 if request.version < _WITH_EPOCH else 12
        places: list[int] = []
        named: list[bytes] = []
        for topic in topics:
            at += len(topic.head)
            named += topic.head, repr(topic.partitions).encode()
            for _ in topic.partitions:
                place = at + _INDEX_BYTES
                places.append(place)
                mask[place : place + width] = bytes(width)
                at += stride
            at += tags
        self.places = places
        """Of the offset of each partition, in order."""
        self.width = width
        """Of an offset, with the leader epoch that follows it where the version has one."""
        self.partitions = b"".join(named)
        """The same for all requests that name the same partitions in the same order."""
        self.size = len(frame)
        """Of each request."""
        self._mask = int.from_bytes(mask, "big")
        self._fixed = int.from_bytes(frame, "big") & self._mask
        answer = committed(request, [0] * len(topics))
        self._answer = answer[:4], answer[8:]

    def fits(self, frame: bytes) -> bool:
        """Whether a request is of this form."""
        if len(frame) != self.size:
            return False
        return int.from_bytes(frame, "big") & self._mask == self._fixed

    def request_of(self, frame: bytes) -> CommitRequest:
        """A request of this form, but with other offsets."""
        return self.request._replace(correlation_id=int.from_bytes(frame[_CORRELATION], "big"))

    def committed(self, frame: bytes) -> bytes:
        """The whole answer to a request of this form whose offsets are all committed."""
        length, rest = self._answer
        return b"".join((length, frame[_CORRELATION], rest))


class _AnotherForm(ValueError):
    """The reader of the schema is to read it."""


# --- requests -----------------------------------------------------------------------------


def read_commit(frame: bytes) -> CommitRequest | None:
    """The request of a frame, header included; None if it is to be read by its schema."""
    try:
        version, correlation_id, size = REQUEST_HEAD.unpack_from(frame)
        if not 2 <= version <= _BY_ID or size < 0:
            return None
        if version >= _FLEXIBLE:
            group, at = _flexible_group(frame, REQUEST_HEAD.size + size)
            count, at = frame[at] - 1, at + 1
            if count > LONGEST_COMPACT:
                return None
        else:
            group, at = _group(frame, REQUEST_HEAD.size + size, version)
            (count,) = _COUNT.unpack_from(frame, at)
            at += 4
        topics, end = _topics(frame, at, version, count)
    except WRONG:
        return None
    if end != len(frame):
        return None
    request: CommitRequest = _new(CommitRequest, (version, correlation_id, *group, topics))
    return request


def _group(frame: bytes, at: int, version: int) -> tuple[_Group, int]:
    """The group and its member, up to version 7, and where they end."""
    (size,) = TEXT_LENGTH.unpack_from(frame, at)
    start, at = at + 2, at + 2 + size
    if size < 0:
        raise _AnotherForm
    group_id = frame[start:at].decode()
    generation, size = _MEMBER.unpack_from(frame, at)
    start = at + _MEMBER.size
    at = start + size
    if size < 0:
        raise _AnotherForm
    member_id, instance_id, retention_ms = frame[start:at].decode(), None, -1
    if version >= 7:
        (size,) = TEXT_LENGTH.unpack_from(frame, at)
        at += 2
        if size >= 0:
            start, at = at, at + size
            instance_id = frame[start:at].decode()
        elif size != -1:
            raise _AnotherForm
    elif version < 5:
        (retention_ms,) = _RETENTION.unpack_from(frame, at)
        at += _RETENTION.size
    return (group_id, generation, member_id, instance_id, retention_ms), at


def _flexible_group(frame: bytes, at: int) -> tuple[_Group, int]:
    """The same from version 8 on; texts are those whose length takes one byte."""
    size = frame[at + 1] - 1
    start, at = at + 2, at + 2 + size
    if frame[start - 2] or not 0 <= size <= LONGEST_COMPACT:  # the header's tags first
        raise _AnotherForm
    group_id = frame[start:at].decode()
    generation, size = _FLEXIBLE_MEMBER.unpack_from(frame, at)
    start, size = at + _FLEXIBLE_MEMBER.size, size - 1
    at = start + size
    if not 0 <= size <= LONGEST_COMPACT:
        raise _AnotherForm
    member_id, instance_id = frame[start:at].decode(), None
    size, at = frame[at] - 1, at + 1
    if size > LONGEST_COMPACT:
        raise _AnotherForm
    if size >= 0:
        start, at = at, at + size
        instance_id = frame[start:at].decode()
    return (group_id, generation, member_id, instance_id, -1), at


def _topics(frame: bytes, at: int, version: int, count: int) -> tuple[list[CommittedTopic], int]:
    """The topics, one or more, and where the request ends."""
    form, is_flexible = _FORMS[version], version >= _FLEXIBLE
    left, topics = MOST_PARTITIONS, []
    if count < 1:
        raise _AnotherForm
    for _ in range(count):
        begin, name, topic_id = at, "", None
        if version >= _BY_ID:
            at += _ID_SIZE
            topic_id = read_topic_id(frame[begin:at])
        else:
            if is_flexible:
                size, at = frame[at] - 1, at + 1
                if size > LONGEST_COMPACT:
                    raise _AnotherForm
            else:
                (size,) = TEXT_LENGTH.unpack_from(frame, at)
                at += 2
            start, at = at, at + size
            if not 0 < size <= LONGEST_NAME:
                raise _AnotherForm
            name = frame[start:at].decode()
        if is_flexible:
            partitions, at = frame[at], at + 1
            if partitions > 127:
                partitions, at = partitions & 127 | (frame[at] or MOST_PARTITIONS) << 7, at + 1
            partitions -= 1
        else:
            (partitions,) = _COUNT.unpack_from(frame, at)
            at += 4
        head = frame[begin:at]
        if not 0 < partitions <= left:
            raise _AnotherForm
        left -= partitions
        columns, at = _partitions(form, frame, at, partitions)
        topic: CommittedTopic = _new(CommittedTopic, (name, topic_id, head, *columns))
        topics.append(topic)
        if is_flexible:
            if frame[at]:
                raise _AnotherForm
            at += 1
    if is_flexible:
        if frame[at]:
            raise _AnotherForm
        at += 1
    return topics, at


def _partitions(form: _RequestForm, frame: bytes, at: int, count: int) -> tuple[_Columns, int]:
    """The partitions of a topic, and where they end."""
    plain = form.plain
    end = at + count * plain.size
    if count > _FEW and end <= len(frame):
        columns = list(zip(*plain.iter_unpack(frame[at:end]), strict=True))
        tags = columns.pop() if form.tags else ()
        if not any(tags) and form.no_metadata.issuperset(columns.pop()):
            epochs = columns[2] if len(columns) > 2 else (-1,) * count
            return (columns[0], columns[1], epochs, ("",) * count), end
    return _one_by_one(form, frame, at, count)


def _one_by_one(form: _RequestForm, frame: bytes, at: int, count: int) -> tuple[_Columns, int]:
    """As `_partitions`, with metadata or not."""
    fields, is_flexible = form.fields, bool(form.tags)
    rows = []
    for _ in range(count):
        index, offset, *epoch, size = fields.unpack_from(frame, at)
        at += fields.size
        if is_flexible:
            size -= 1
            if size > LONGEST_COMPACT:
                raise _AnotherForm
        metadata = ""
        if size > 0:
            start, at = at, at + size
            metadata = frame[start:at].decode()
        elif size < -1:
            raise _AnotherForm
        if is_flexible:
            if frame[at]:
                raise _AnotherForm
            at += 1
        rows.append((index, offset, epoch[0] if epoch else -1, metadata))
    partitions, offsets, epochs, texts = zip(*rows, strict=True)
    return (partitions, offsets, epochs, texts), at


# --- answers ------------------------------------------------------------------------------


def committed(request: CommitRequest, error_codes: Sequence[int]) -> bytes:
    """The whole answer, its length and header included.

    Args:
        error_codes: of its topics, in their order; each is that of all partitions.
    """
    form, topics = _FORMS[request.version], request.topics
    count = _COUNT.pack(len(topics)) if not form.tags else bytes((len(topics) + 1,))
    parts = [b"", count]
    for topic, code in zip(topics, error_codes, strict=True):
        parts += topic.head, *map(form.answered.pack, topic.partitions, repeat(code)), form.tags
    parts.append(form.tags)
    length = form.answer.size - 4 + sum(map(len, parts))
    parts[0] = form.answer.pack(length, request.correlation_id)
    return b"".join(parts)
