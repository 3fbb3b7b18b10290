"""What a worker of Spark does once, before its first task."""

import pickle
import subprocess
import sys

import pytest

from horolog.errors import Misconfigured
from horolog.spark import workers

_RUN = """
import gc, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name={name!r})
from horolog.spark.workers import prepare_for_tasks
prepare_for_tasks()
frozen = gc.get_freeze_count()
prepare_for_tasks()
print(frozen, gc.get_freeze_count(), len(gc.get_objects()))
"""


@pytest.mark.parametrize(("name", "is_worker"), [("pyspark.daemon", True), ("app", False)])
def test_a_collection_after_a_task_does_not_look_at_the_kernels_compiler(
    name: str, is_worker: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RUN.format(name=name)], capture_output=True, text=True, check=True
    )
    frozen, frozen_again, tracked = map(int, done.stdout.split())
    assert frozen == frozen_again
    if is_worker:
        assert frozen > 10 * tracked
    else:
        assert frozen == 0


def test_a_task_of_few_offsets_reads_without_the_compiler() -> None:
    code = (
        "import sys\n"
        "from horolog.spark.workers import prepare_for_tasks\n"
        "for offsets in (1000, 1_000_000):\n"
        "    prepare_for_tasks(offsets=offsets)\n"
        "    print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


class Planned(workers.SentToWorkers):
    def __init__(self) -> None:
        self.task = 7


def test_what_the_driver_plans_is_read_by_workers_of_the_same_version() -> None:
    assert vars(pickle.loads(pickle.dumps(Planned()))) == {"task": 7}


def test_a_worker_of_another_version_fails_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = pickle.dumps(Planned())
    monkeypatch.setattr(workers, "__version__", "0.0.1")
    with pytest.raises(Misconfigured, match="driver and workers need the same version"):
        pickle.loads(sent)
