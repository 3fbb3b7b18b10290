"""Compilation of kernels, with a cache where one can be kept.

numba by itself puts compiled code next to the source or in the home directory. It raises where
neither can be written (containers, Spark's workers), and does not notice a change in another file
from which a kernel takes helpers or constants. So the directory is chosen here, and named after the
sources' digest. It is under the user's cache or the temporary directory; without either the kernels
are compiled each time.
"""

import functools
import hashlib
import os
import pickle
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.options import DefaultOptions

from horolog.record.kernels.loading import check_loading

_numba_config: Any = config
_njit: Any = numba.njit
# Counting references to borrowed arrays around every helper would double a kernel's time,
# and kernels neither make arrays nor keep them.
_OPTIONS: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
CONSTANTS = ("batch.py", "timestamps.py")
"""Modules of the package above from which kernels take constants."""
_CACHE_TROUBLE = (RuntimeError, OSError, EOFError, ValueError, pickle.PickleError)


def helper(function: Callable[..., Any], *, is_inlined: bool = False) -> Any:
    """Compile a function that kernels call into each of them."""
    return _njit(forceinline=is_inlined, **_OPTIONS)(function)


def compile_kernel(signature: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for one signature; it runs without the interpreter's lock."""
    check_loading()
    for directory in _directories():
        before = _numba_config.CACHE_DIR
        _numba_config.CACHE_DIR = str(directory)
        try:
            return _compile(signature, function, cache=True)
        except _CACHE_TROUBLE:
            continue  # full, read-only after all, or damaged: try elsewhere
        finally:
            _numba_config.CACHE_DIR = before
    return _compile(signature, function, cache=False)


def _compile(signature: Any, function: Callable[..., Any], *, cache: bool) -> Callable[..., Any]:
    compiled: Callable[..., Any] = _njit(signature, nogil=True, cache=cache, **_OPTIONS)(function)
    return compiled


def _directories() -> Iterator[Path]:
    """Yield directories for a cache. Its files are executed, so no other user may write there."""
    for place in _places():
        directory = place / f"kernels-{sources_digest()}"
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir(mode=0o700, exist_ok=True)
            if not _is_ours_alone(place):
                continue
            directory.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK):
            yield directory


def _is_ours_alone(place: Path) -> bool:
    status = place.lstat()
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.getuid()
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _places() -> Iterator[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        yield Path(home) / "horolog"
    try:
        yield Path(tempfile.gettempdir()) / f"horolog-{os.getuid()}"
    except OSError:  # there is no writable directory at all
        return


@functools.cache
def sources_digest() -> str:
    """Return the digest of the sources that kernels are compiled from."""
    digest = hashlib.sha256(numba.__version__.encode())
    kernels = Path(__file__).parent
    with_constants = (path for name in CONSTANTS for path in kernels.parent.glob(name))
    for source in sorted((*kernels.glob("*.py"), *with_constants)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
