"""Paths as users give them: URIs, or local paths."""

import os
import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_S3_OF_HADOOP = re.compile(r"s3[an]://")


def has_scheme(path: str) -> bool:
    """Whether a path names its file system."""
    return _SCHEME.match(path) is not None


def absolute(path: str) -> str:
    """The path as any process can open it: a relative one is the driver's."""
    return path if has_scheme(path) else os.path.abspath(path)


def local_path(path: str) -> str | None:
    """The path on this machine, `file:` or plain; None if it is elsewhere."""
    if path.startswith("file:"):
        return os.path.abspath("/" + path.removeprefix("file:").lstrip("/"))
    return None if has_scheme(path) else os.path.abspath(path)


def for_arrow(uri: str) -> str:
    """The URI in pyarrow's words: Spark's users write s3a for S3."""
    return _S3_OF_HADOOP.sub("s3://", uri)
