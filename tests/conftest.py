"""What all tests share: the lab on the path, hypothesis profiles, and brokers."""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from horolog.clock import Clock

sys.path.insert(0, str(Path(__file__).parent / "lab"))
pytest_plugins = ["forked_workers"]

import secrets_kept  # noqa: E402 - in the lab

if TYPE_CHECKING:
    from certificates import Certificates
    from in_process_spark import InProcessSpark
    from running_broker import BrokerProcess, MakeBroker, NewLoop, RunningBroker
    from s3_server import S3Server
    from shell_blocks import Shell

    from horolog.client import Client

IN_MEMORY = Path("/dev/shm")
if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > 4 << 30:
    # Thousands of brokers start and stop here, and each syncs: on a shared disk that takes seconds.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))

# A shell lets what it runs in the background ignore Ctrl-C, and that is passed on to the commands
# that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# It never earns back what the best compiler and the verifying of Spark's own classes cost. The
# code cache that the other compiler reserves is too small for Spark, and would be swept all along.
JVM_OF_A_FEW_MINUTES = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OF_A_FEW_MINUTES)

# Spark gives its Python workers 15 s to connect back: not enough where everything waits its turn.
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS",
    "--conf spark.python.authenticate.socketTimeout=20m --conf spark.network.timeout=20m "
    "pyspark-shell",
)

for profile, examples in (("quick", 25), ("thorough", 500)):
    settings.register_profile(
        profile,
        deadline=None,  # shared machines pause at will
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that need Spark in one process, and let the first start the JVM."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.timeout(1800), append=True)
            item.add_marker(pytest.mark.xdist_group("spark"))


# Importing and collecting tests makes millions of objects and hardly any garbage, which each full
# collection of the garbage collector would visit again.
gc.disable()


def pytest_collection_finish() -> None:
    """Exclude the tests themselves, millions of objects, from every collection while they run."""
    gc.freeze()
    gc.enable()


# At its end the interpreter collects them, once: extension modules report what it does not. Two
# collections of pytest's own come before.
atexit.register(gc.unfreeze)


@pytest.fixture(scope="session", autouse=True)
def _cache_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A directory for maps of logs: they are kept by path, and paths are used again."""
    os.environ["HOROLOG_CACHE_DIR"] = str(tmp_path_factory.mktemp("horolog-cache"))


@pytest.fixture(autouse=True)
def secrets_stay(request: pytest.FixtureRequest) -> Iterator[secrets_kept.Kept | None]:
    """Fail a test that has written or logged a password of the lab.

    `exempt` has the names of files in which one may be.
    """
    if not secrets_kept.uses_passwords(request.module):
        yield None
        return
    directory: Path = request.getfixturevalue("tmp_path")  # is there until this has looked at it
    kept = secrets_kept.current = secrets_kept.Kept()
    kept.listen()
    try:
        yield kept
    finally:
        kept.stop()
        secrets_kept.current = None
    kept.look_into(directory)
    assert not kept.leaks, "a password of this test is shown"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look for passwords in what pytest has captured of a test."""
    report = yield
    module = getattr(item, "module", None)
    is_over = report.when == "teardown" and report.passed
    if is_over and module is not None and secrets_kept.uses_passwords(module):
        shown = [title for title, text in report.sections if secrets_kept.shows_a_password(text)]
        if shown:
            report.outcome = "failed"
            report.longrepr = f"a password of this test is in: {', '.join(shown)}"
    return report


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory on a disk: only there does the system tell what is in the page cache."""
    with tempfile.TemporaryDirectory(prefix="horolog-", dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator["MakeBroker"]:
    """Brokers in this process."""
    from running_broker import RunningBroker  # noqa: PLC0415 - most tests need no broker

    from horolog.broker import new_event_loop  # noqa: PLC0415

    brokers: list[RunningBroker] = []

    def make(
        *,
        log_dir: Path | None = None,
        clock: Clock | None = None,
        new_loop: "NewLoop | None" = None,
        **settings: str,
    ) -> RunningBroker:
        path = tmp_path / f"broker-{len(brokers)}" if log_dir is None else log_dir
        named = {name.replace("_", "."): value for name, value in settings.items()}
        brokers.append(RunningBroker(path, named, clock, new_loop or new_event_loop))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.stop()


@pytest.fixture
def broker(make_broker: "MakeBroker") -> "RunningBroker":
    """A broker in this process, on the machine's clock."""
    return make_broker()


@pytest.fixture
def clock(broker: "RunningBroker") -> Clock:
    """The broker's."""
    return broker.clock


@pytest.fixture
def client(broker: "RunningBroker") -> "Client":
    """One that waits for the broker as long as a test does."""
    return broker.client


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator["BrokerProcess"]:
    """A broker in a process of its own, to be killed."""
    from running_broker import BrokerProcess  # noqa: PLC0415 - most tests need no broker

    process = BrokerProcess(tmp_path / "broker")
    yield process
    process.kill()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> "Certificates":
    """An authority, a broker's and clients' certificates."""
    from certificates import make_certificates  # noqa: PLC0415 - few tests need them

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator["S3Server"]:
    """An S3 that takes requests of anybody."""
    from s3_server import S3Server  # noqa: PLC0415 - few tests need one

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with S3Server() as server:
        yield server


@pytest.fixture
def in_process_spark(monkeypatch: pytest.MonkeyPatch) -> "InProcessSpark":
    """A session for what jobs do in tasks, without Java; commands run in it as well."""
    from in_process_spark import InProcessSpark  # noqa: PLC0415 - of the lab

    session = InProcessSpark()
    monkeypatch.setattr("horolog.cli.jobs.command.Call.session", lambda _: nullcontext(session))
    return session


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Shell"]:
    """Runs pages and scripts in an empty directory, with `horolog` on the path."""
    from shell_blocks import Shell  # noqa: PLC0415 - of the lab

    monkeypatch.chdir(tmp_path)
    running = Shell(tmp_path)
    yield running
    running.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One session on two threads, for all tests: it takes its time to start."""
    from few_rows import FEW_ROWS  # noqa: PLC0415 - of the lab

    from horolog.spark import session  # noqa: PLC0415 - most tests here need no Java

    with warnings.catch_warnings():
        # py4j leaves the pipe to its JVM to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        spark = session("horolog tests", master="local[2]", **FEW_ROWS)
    yield spark
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        spark.stop()
