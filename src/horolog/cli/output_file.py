"""Output files of commands, which appear when they are complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from horolog.errors import Misconfigured, StorageFailed

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", dir_okay=False, metavar="FILE", help="Write to this file."),
]


def check_output(output: Path) -> None:
    """Refuse a file that cannot be written, before there is anything to write.

    Raises:
        Misconfigured: its path is a directory, or its directory is missing or read-only.
    """
    if output.is_dir():
        raise Misconfigured(f"{output} is a directory: name a file in it")
    if not output.parent.is_dir():
        raise Misconfigured(f"{output} cannot be written: there is no directory {output.parent}")
    if not os.access(output.parent, os.W_OK):
        raise Misconfigured(f"{output} cannot be written: {output.parent} is read-only for you")


@contextmanager
def whole_file(output: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of the output when it is complete.

    After an error what was there before is still there. A link is replaced, not followed.

    Raises:
        StorageFailed: the file cannot be written.
    """
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)  # of a killed process with the same number
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    except OSError as error:
        raise StorageFailed(f"{output} cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
