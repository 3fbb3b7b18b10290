"""Kernels come when asked for, in the background, with a cache wherever one can be kept."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from batches import BASE_OFFSET, generated_batch
from overrides import override
from patience import PATIENCE_S
from plain_kernels import without_numba

from horolog.record import (
    SCAN_KERNELS,
    Codec,
    Kernels,
    LogRecord,
    build_batch,
    column_kernels,
    decode,
    parse_header,
    scan,
    scan_kernels,
)

numba = pytest.importorskip("numba")
cache = pytest.importorskip("horolog.record.kernels.cache")
compiled = pytest.importorskip("horolog.record.kernels.compiled")

MUCH = 64 << 20  # bytes of work of plain Python


def plus_one(number):
    return number + 1


SIGNATURE = numba.int64(numba.int64)


def flipped(data: bytes) -> bytes:
    return data[:-50] + bytes([data[-50] ^ 1]) + data[-49:]


@pytest.fixture
def places(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The user's cache and the temporary directory, both empty."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    override(monkeypatch, "tempfile", tempdir=str(temporary))
    override(monkeypatch, "horolog.record", _not_kept_in=[])  # which a later broker warns of
    return home, temporary


def cached(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.suffix == ".kernel")


def test_compiled_code_is_kept_in_the_users_cache_and_found_again(places):
    home, temporary = places
    assert cache.compile_kernel(SIGNATURE, plus_one)(1) == 2
    assert len(cached(home)) == 1
    again = cache.compile_kernel(SIGNATURE, plus_one)
    assert again(1) == 2
    assert sum(again.stats.cache_hits.values()) == 1
    assert cached(temporary) == []


def test_without_a_home_the_temporary_directory_serves(places, monkeypatch):
    home, temporary = places
    home.rmdir()
    home.write_text("a file can hold no cache, not even for root")
    assert cache.compile_kernel(SIGNATURE, plus_one)(1) == 2
    assert len(cached(temporary)) == 1
    assert (temporary / f"horolog-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_without_any_place_it_works_without_a_cache(places):
    for place in places:
        place.rmdir()
        place.write_text("")
    kernel = cache.compile_kernel(SIGNATURE, plus_one)
    assert kernel(1) == 2
    assert sum(kernel.stats.cache_hits.values()) == 0


@pytest.mark.parametrize("trap", ["open to all", "a link", "of another user"])
def test_a_directory_that_others_can_write_is_not_used(places, trap):
    if trap == "of another user" and os.getuid() != 0:
        pytest.skip("only root can give a directory away")
    home, temporary = places
    home.rmdir()
    home.write_text("")
    place = temporary / f"horolog-{os.getuid()}"
    if trap == "a link":
        (temporary / "elsewhere").mkdir()
        place.symlink_to(temporary / "elsewhere")
    elif trap == "open to all":
        place.mkdir()
        place.chmod(0o777)
    else:
        place.mkdir(mode=0o700)
        os.chown(place, 4321, -1)
    assert cache.compile_kernel(SIGNATURE, plus_one)(1) == 2
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:100], flipped])
def test_a_damaged_cache_is_passed_by_and_replaced(places, damage):
    home, _ = places
    cache.compile_kernel(SIGNATURE, plus_one)
    (path,) = cached(home)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.compile_kernel(SIGNATURE, plus_one)(1) == 2
    assert sum(cache.compile_kernel(SIGNATURE, plus_one).stats.cache_hits.values()) == 1


@dataclass
class Starts:
    """Processes that load a kernel, of a user whom the rights of files bind."""

    home: Path
    temporary: Path

    def load(self, program: str, **environment: str) -> str:
        given = {
            "HOME": os.environ.get("HOME", "/"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XDG_CACHE_HOME": str(self.home),
        }
        program = f"import tempfile\ntempfile.tempdir = {str(self.temporary)!r}\n{program}"
        if os.getuid() == 0:
            program = f"import powerless\npowerless.drop_capabilities()\n{program}"
        command = [sys.executable, "-c", program]
        ran = subprocess.run(
            command, env=given | environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def make_read_only(self) -> None:
        for path in (self.home, *self.home.rglob("*"), self.temporary):
            path.chmod(path.stat().st_mode & 0o555)


@pytest.fixture
def starts(places) -> Iterator[Starts]:
    if os.getuid() == 0 and sys.platform != "linux":
        pytest.skip("root may write whatever the rights say")
    starts = Starts(*places)
    yield starts
    for path in (starts.home, *starts.home.rglob("*"), starts.temporary):
        path.chmod(path.stat().st_mode | 0o700)


ONE_KERNEL = """
import numba
from horolog.record.kernels.cache import compile_kernel
from horolog.record.kernels.loading import compiles_at_each_start

def plus_one(number):
    return number + 1

kernel = compile_kernel(numba.int64(numba.int64), plus_one)
assert kernel(1) == 2
print(sum(kernel.stats.cache_hits.values()), compiles_at_each_start() or "is kept")
"""


def test_a_cache_that_can_only_be_read_is_used(starts):
    assert starts.load(ONE_KERNEL) == "0 is kept"
    starts.make_read_only()
    assert starts.load(ONE_KERNEL) == "1 is kept"


def test_what_a_cache_that_can_only_be_read_lacks_is_kept_in_the_next_directory(starts):
    starts.load(ONE_KERNEL.replace("+ 1", "- -1"))
    starts.make_read_only()
    starts.temporary.chmod(0o700)
    assert starts.load(ONE_KERNEL) == "0 is kept"
    assert starts.load(ONE_KERNEL) == "1 is kept"
    assert len(cached(starts.temporary)) == 1


def test_code_for_another_processor_is_not_used_and_generic_code_is_by_all(starts):
    assert starts.load(ONE_KERNEL, NUMBA_CPU_NAME="generic") == "0 is kept"
    assert starts.load(ONE_KERNEL) == "0 is kept"
    starts.make_read_only()
    assert starts.load(ONE_KERNEL, NUMBA_CPU_NAME="generic") == "1 is kept"
    assert starts.load(ONE_KERNEL) == "1 is kept"


def test_kernels_that_no_directory_keeps_are_compiled_at_each_start_which_is_said(starts):
    starts.make_read_only()
    said = starts.load(ONE_KERNEL)
    assert said.startswith("0 the kernels are compiled at each start")
    assert f"{starts.home / 'horolog'}, {starts.temporary / f'horolog-{os.getuid()}'}." in said
    assert starts.load(ONE_KERNEL) == said


ALL_KERNELS = """
from numba.core.event import install_recorder
from horolog.record.kernels.loading import compiles_at_each_start, load_all

with install_recorder("numba:compile") as compiled:
    load_all()
print(len(compiled.buffer), compiles_at_each_start() or "is kept")
"""


def test_a_start_with_a_cache_that_can_only_be_read_compiles_nothing(starts, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delenv("XDG_CACHE_HOME")
        override(patch, "tempfile", tempdir=None)
        subprocess.run([sys.executable, "-c", ALL_KERNELS], check=True)
        (compiled,) = {
            path for path in cache.directories() if any(path.glob("scan_kernels.*.kernel"))
        }
    shutil.copytree(compiled, starts.home / "horolog" / compiled.name)
    starts.make_read_only()
    assert starts.load(ALL_KERNELS) == "0 is kept"


def test_a_change_in_any_source_file_means_another_cache(places, tmp_path, monkeypatch):
    home, _ = places
    cache.compile_kernel(SIGNATURE, plus_one)
    (tmp_path / "kernels").mkdir()
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "kernels" / "cache.py"))
    for number, changed in enumerate(("kernels/text.py", *cache.CONSTANTS), 2):
        (tmp_path / changed).write_text("# changed")
        cache.sources_digest.cache_clear()
        try:
            cache.compile_kernel(SIGNATURE, plus_one)
        finally:
            cache.sources_digest.cache_clear()
        assert len(list((home / "horolog").iterdir())) == number


def test_kernels_take_constants_from_files_whose_change_is_noticed():
    kernels = Path(cache.__file__).parent
    sources = [path.read_text() for path in kernels.glob("*_kernels.py")]
    taken = {name for source in sources for name in re.findall(r"from horolog\.(\S+) im", source)}
    others = {name for name in taken if not name.startswith("record.kernels.")}
    assert others <= {f"record.{name.removesuffix('.py')}" for name in cache.CONSTANTS}
    assert sources


@pytest.mark.slow
def test_a_process_without_a_writable_home_gets_its_kernels(tmp_path):
    """The whole way once, as in a container: nothing can be written but the temporary directory."""
    (tmp_path / "file").write_text("")
    program = (
        "from horolog.record import scan\n"
        "from horolog.record.batch import parse_header\n"
        "from horolog.record.builder import LogRecord, build_batch\n"
        "assert not scan.kernels_ready()\n"
        "scan.load_kernels()\n"
        "assert scan.kernels_ready()\n"
        "batch = build_batch([LogRecord(5, None, b'')] * 3)\n"
        "print(scan.scan_batch(batch, parse_header(batch), max_bytes=0).count)\n"
    )
    environment = {
        "HOME": str(tmp_path / "file"),
        "TMPDIR": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    assert done.stdout.strip() == b"3"
    assert cached(tmp_path)


def test_nothing_heavy_is_imported_by_what_a_broker_imports():
    program = (
        "import sys\n"
        "import horolog.record.batch, horolog.record.builder, horolog.record.scan\n"
        "import horolog.broker.service\n"
        "print([name for name in ('numba', 'numpy', 'pyarrow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_kernels_are_loaded_once_however_often_they_are_asked_for(monkeypatch):
    texts = []
    override(
        monkeypatch,
        "horolog.record.kernels.compiled",
        functions_of=lambda text: texts.append(text) or text,
    )
    kernels = Kernels(scan_kernels.__name__)
    assert not kernels.is_loaded
    first = kernels.load_in_background()
    assert kernels.load_in_background() is first
    first.join()
    kernels.load()
    assert texts == [scan_kernels]
    assert kernels.is_loaded
    assert kernels.run is scan_kernels


def test_two_threads_never_load_at_once(monkeypatch):
    """numba's registries and the directory of its cache are those of the process."""
    inside, most = [], []

    def functions_of(text):
        inside.append(text)
        most.append(len(inside))
        one_more.wait(0.2)  # nobody sets it: as long as a second thread may take to come in
        inside.remove(text)
        return text

    one_more = threading.Event()
    override(monkeypatch, "horolog.record.kernels.compiled", functions_of=functions_of)
    texts = (scan_kernels.__name__, column_kernels.__name__)
    threads = [Kernels(text).load_in_background() for text in texts]
    for thread in threads:
        thread.join()
    assert most == [1, 1]


def test_a_scan_gives_the_same_facts_before_and_after_the_kernels_come(rng, monkeypatch):
    batch = generated_batch(rng, count=40, codec=Codec.GZIP, base_offset=BASE_OFFSET)
    header = parse_header(batch.data)
    with monkeypatch.context() as before:
        without_numba(SCAN_KERNELS, before)
        assert not scan.kernels_ready()
        facts = scan.scan_batch(batch.data, header, max_bytes=1 << 20)
    scan.load_kernels()
    assert scan.kernels_ready()
    assert scan.scan_batch(batch.data, header, max_bytes=1 << 20) == facts


def test_much_decoding_brings_the_kernels_and_a_little_does_not(monkeypatch):
    started = []
    lazy = Kernels(column_kernels.__name__)
    monkeypatch.setattr(lazy, "load_in_background", lambda: started.append(1))
    override(monkeypatch, "horolog.record", COLUMN_KERNELS=lazy)
    small = build_batch([LogRecord(1, None, b"v")])
    assert sum(table.num_rows for table in decode(small)) == 1
    assert started == []
    large = build_batch([LogRecord(1, None, bytes(1 << 20))])
    assert sum(table.num_rows for table in decode(large)) == 1
    assert started


def test_noting_work_does_not_wait_for_kernels_that_are_loaded_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the event loop that notes it, and compiling takes seconds."""
    begun, may_end = threading.Event(), threading.Event()
    gate = SimpleNamespace(begun=begun, may_end=may_end)
    monkeypatch.setitem(sys.modules, "gate_of_slow_kernels", gate)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_kernels.py").write_text(
        f"import gate_of_slow_kernels as it\nit.begun.set()\nit.may_end.wait({PATIENCE_S})\n"
    )
    kernels = Kernels("slow_kernels")
    try:
        kernels.note_work(MUCH)
        assert begun.wait(PATIENCE_S)
        noting = threading.Thread(target=kernels.note_work, args=(MUCH,), daemon=True)
        noting.start()
        noting.join(PATIENCE_S / 2)
        assert not noting.is_alive()
        assert not kernels.is_loaded
    finally:
        may_end.set()
        kernels.load_in_background().join(PATIENCE_S)
        sys.modules.pop("slow_kernels", None)
    assert kernels.is_loaded


def test_a_thread_that_loads_ends_before_the_process_does() -> None:
    source = (
        "import time\n"
        "from horolog.record.kernels.loading import begin_loading, check_loading\n"
        "def load():\n"
        "    try:\n"
        "        while True:\n"
        "            time.sleep(0.001)\n"
        "            check_loading()\n"
        "    finally:\n"
        "        print('ended')\n"
        "begin_loading(load, 'load')\n"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("ended\n", "")
