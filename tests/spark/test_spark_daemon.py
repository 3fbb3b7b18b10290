"""Workers that Spark is given: forked with their imports done, and without a thread to lose."""

import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
from running_broker import RunningBroker
from streaming_query import append

from horolog.spark import register


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed by Linux")
def test_it_becomes_sparks_own_where_an_import_has_started_a_thread() -> None:
    threaded = {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:true"}
    with subprocess.Popen(
        [sys.executable, "-m", "horolog.spark_daemon", "pyspark.worker"],
        env={**os.environ, **threaded},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:  # which ends when its input does
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        command = Path(f"/proc/{daemon.pid}/cmdline").read_text().replace("\0", " ")
    assert "-m pyspark.daemon pyspark.worker" in command
    assert 0 < port < 1 << 16


_READ_AHEAD_OF_TIME = """
import importlib.util, sys
from horolog.spark_daemon import import_ahead
assert import_ahead()
listed = []
sys.addaudithook(
    lambda event, of: listed.append(of[0])
    if event == "open" and str(of[0]).endswith((".zip", ".jar"))
    else None
)
importlib.invalidate_caches()
assert importlib.util.find_spec("no_such_module") is None
print(listed)
imported = set(sys.modules)
from horolog.sources.options import ReadOptions
from horolog.sources.plan import BrokerStretch
from horolog.sources.reading import read_task
from horolog.sources.row_filter import RowFilter
from horolog.storage.names import TopicPartition
options = ReadOptions.parse({{"kafka.bootstrap.servers": {address!r}, "subscribe": "clicks"}})
task = (BrokerStretch(TopicPartition("clicks", 0), 0, 1, until=1 << 40),)
print(sum(batch.num_rows for batch in read_task(task, RowFilter(), options, ("value",), (True,))))
print(sorted(set(sys.modules) - imported))
import early, shutil
shutil.copy({after!r}, {before!r})
importlib.invalidate_caches()
import late
print(late.__file__ == {before!r} + "/late.py")
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed by Linux")
def test_what_it_forks_reads_without_another_import_and_lists_archives_that_have_changed_alone(
    broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("clicks")
    append(broker.client, "clicks", 0, 3, 100)
    before, after = tmp_path / "before.zip", tmp_path / "after.zip"
    for path, names in (before, ("early",)), (after, ("early", "late")):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(f"{name}.py", "")
    names = {"address": broker.address, "before": str(before), "after": str(after)}
    code = _READ_AHEAD_OF_TIME.format(**names)
    assert _run_with([before, *_archives_of_a_worker()], code) == ["[]", "3", "[]", "True"]


def _archives_of_a_worker() -> list[Path]:
    """What Spark has before all else on a worker's path."""
    spark = Path(pyspark.__file__).parent
    libraries = spark / "python" / "lib"
    jars = (spark / "jars").glob("spark-core_*.jar")
    return [libraries / "pyspark.zip", *libraries.glob("py4j-*.zip"), *jars]


def _run_with(archives: list[Path], code: str) -> list[str]:
    path = os.pathsep.join([*map(str, archives), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.spark
def test_workers_of_a_session_come_with_kernels_and_random_numbers_of_their_own(spark: Any) -> None:
    def facts_of_a_worker(_: int) -> tuple[str, bool, float]:  # here, it is pickled by value
        import os  # noqa: PLC0415 - runs in a worker
        import sys  # noqa: PLC0415 - as well
        import time  # noqa: PLC0415 - as well

        import numpy as np  # noqa: PLC0415 - as well

        has_kernels = "horolog.record.kernels.column_kernels" in sys.modules
        time.sleep(0.2)  # so that each task of two has a worker of its own
        with open(f"/proc/{os.getppid()}/cmdline") as file:
            return file.read(), has_kernels, float(np.random.rand())

    facts = spark.sparkContext.parallelize(range(2), 2).map(facts_of_a_worker).collect()
    assert all("horolog.spark_daemon" in parent for parent, *_ in facts)
    assert all(has_kernels for _, has_kernels, _ in facts)
    assert len({number for *_, number in facts}) == len(facts)


@pytest.mark.spark
def test_a_session_without_pyspark_python_reads_with_the_running_python(
    spark: Any, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("clicks")
    append(broker.client, "clicks", 0, 3, 100)
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "no-such-python")
    register(spark)
    reader = spark.read.format("horolog").option("subscribe", "clicks")
    frame = reader.option("kafka.bootstrap.servers", broker.address).load()
    assert len(frame.take(2)) == 2
    assert frame.count() == 3


@pytest.mark.spark
def test_a_python_that_a_user_names_is_kept(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python-of-the-user")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python-of-the-user")
    register(spark)
    assert spark.sparkContext.pythonExec == "python-of-the-user"
    monkeypatch.undo()
    register(spark)
