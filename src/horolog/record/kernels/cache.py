"""Compilation of kernels, with a cache where one can be kept.

numba by itself puts compiled code next to the source or in the home directory. It raises where
neither can be written (containers, Spark's workers), and does not notice a change in another file
from which a kernel takes helpers or constants. So the directory is chosen here, and named after the
sources' digest. It is under the user's cache or the temporary directory. One that can only be read
is used as well, such as that of a container image. A file for each kernel, signature, processor and
version of Python:

     0  32  SHA-256 of the rest
    32      what numba makes of the compiled kernel, pickled

Code that no directory has is compiled, and written to the first that takes it.
"""

import functools
import hashlib
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.options import DefaultOptions
from numba.core.serialize import dumps

from horolog.cache_places import cache_places
from horolog.record.kernels.loading import check_loading, note_not_kept

_njit: Any = numba.njit
_pickled: Any = dumps
_compiled: Any = CompileResult
# Counting references to borrowed arrays around every helper would double a kernel's time,
# and kernels neither make arrays nor keep them.
_OPTIONS: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
CONSTANTS = ("batch.py", "timestamps.py")
"""Modules of the package above from which kernels take constants."""


def helper(function: Callable[..., Any], *, is_inlined: bool = False) -> Any:
    """Compile a function that kernels call into each of them."""
    return _njit(forceinline=is_inlined, **_OPTIONS)(function)


def compile_kernel(signature: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for one signature; it runs without the interpreter's lock."""
    check_loading()
    kernel: Any = _njit(nogil=True, **_OPTIONS)(function)
    kernel._cache = KernelCache(function)
    kernel.compile(signature)
    kernel.disable_compile()
    compiled: Callable[..., Any] = kernel
    return compiled


class KernelCache(NullCache):
    """Cache of one kernel, as numba's dispatcher asks for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel of the first directory that has it; None if none has."""
        target_context.refresh()
        name = self._name(sig, target_context.codegen())
        for directory in directories():
            with suppress(OSError):
                data = (directory / name).read_bytes()
                if hashlib.sha256(data[32:]).digest() == data[:32]:
                    return _compiled._rebuild(target_context, *pickle.loads(data[32:]))  # noqa: S301
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel to the first directory that takes it."""
        payload = _pickled(data._reduce())
        name = self._name(sig, data.codegen)
        for directory in directories():
            with suppress(OSError):  # read-only, or full
                _write(directory / name, hashlib.sha256(payload).digest() + payload)
                return
        note_not_kept(str(place) for place in cache_places())

    def _name(self, signature: Any, codegen: Any) -> str:
        function = self._function
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        machine = sys.implementation.cache_tag, *codegen.magic_tuple()
        key = repr((str(signature), function.__code__.co_code, machine))
        return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.kernel"


def _write(path: Path, data: bytes) -> None:
    """Write a file that appears when it is complete."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
        try:
            file.write(data)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise


def directories() -> Iterator[Path]:
    """Yield directories of a cache, made where that is possible.

    Their files are executed, so nobody may write there but this user and root.
    """
    for place in cache_places():
        directory = place / f"kernels-{sources_digest()}"
        with suppress(OSError):
            if not directory.is_dir():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.mkdir(mode=0o700, exist_ok=True)
            if not _is_safe(place):
                continue
            directory.mkdir(mode=0o700, exist_ok=True)
            yield directory


def _is_safe(place: Path) -> bool:
    status = place.lstat()
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid in (0, os.getuid())
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


@functools.cache
def sources_digest() -> str:
    """Return the digest of the sources that kernels are compiled from."""
    digest = hashlib.sha256(numba.__version__.encode())
    kernels = Path(__file__).parent
    with_constants = (path for name in CONSTANTS for path in kernels.parent.glob(name))
    for source in sorted((*kernels.glob("*.py"), *with_constants)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
