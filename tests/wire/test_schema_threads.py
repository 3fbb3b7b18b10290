"""Schemas are loaded when they are first used, by whichever threads use them."""

import subprocess
import sys

from examples import stride

LOADS = """
import sys, threading
from horolog.wire import schema
from horolog.wire.api import SUPPORTED

failed = []
together = threading.Barrier(4)

def load(kind):
    for api_key, versions in SUPPORTED.items():
        for version in range(versions.min, versions.max + 1, int(sys.argv[1])):
            together.wait()
            try:
                schema.load(kind, api_key, version)
            except BaseException as error:
                failed.append(repr(error))

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=load, args=(kind,)) for kind in ("request", "response") * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failed)
"""


def test_threads_that_load_request_and_response_of_a_version_at_once_have_both() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(stride(4))],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "[]"
