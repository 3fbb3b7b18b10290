"""Let an iterator that waits for others run ahead by one item, in a thread of its own."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class _Failed(Generic[_Item]):
    """How the iterator ended."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Done:
    """The iterator ended well."""


@contextmanager
def ahead(items: Iterator[_Item]) -> Iterator[Iterator[_Item]]:
    """The items, the next one already being fetched while one is worked on.

    Whatever `items` raises is raised where it is waited for. On leaving, the thread is
    waited for: it finishes the item that it is at.
    """
    waiting: queue.Queue[_Item | _Failed[_Item] | _Done] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def offer(item: "_Item | _Failed[_Item] | _Done") -> None:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=0.05)
            except queue.Full:
                continue
            return

    def run() -> None:
        try:
            for item in items:
                offer(item)
                if stopped.is_set():
                    return
            offer(_Done())
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            offer(_Failed(error))

    def take() -> Iterator[_Item]:
        while not isinstance(item := waiting.get(), _Done):
            if isinstance(item, _Failed):
                raise item.error
            yield item

    thread = threading.Thread(target=run, name="horolog-ahead", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        stopped.set()
        thread.join()
