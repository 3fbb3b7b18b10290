"""Let an iterator that waits for others run ahead by one item, in a thread of its own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_END = object()


@contextmanager
def ahead(items: Iterator[_Item]) -> Iterator[Iterator[_Item]]:
    """Yield an iterator over the items that fetches the next one while one is worked on.

    Errors of `items` are raised in their place. On leaving, the item under way is waited for.
    """
    with ThreadPoolExecutor(1, "horolog-ahead") as thread:

        def fetched() -> Iterator[_Item]:
            following = thread.submit(next, items, _END)
            while (item := following.result()) is not _END:
                following = thread.submit(next, items, _END)
                yield item  # type: ignore[misc]  # not `_END`, which mypy cannot tell

        yield fetched()
