"""A standalone Spark cluster on this machine: a master and two workers of one core each."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyspark
from patience import PATIENCE_S

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def cluster(directory: Path, python: str = sys.executable) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    env = {
        **os.environ,
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    ask_master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
    commands = [["org.apache.spark.deploy.master.Master", *ask_master]]
    for number in range(2):
        ui = ["--webui-port", str(free_port()), "--work-dir", str(directory / f"worker-{number}")]
        worker = "org.apache.spark.deploy.worker.Worker"
        commands.append([worker, "--host", "127.0.0.1", "-c", "1", "-m", "700m", *ui, master])
    log = directory / "cluster.log"
    with log.open("w") as said:
        processes = [
            subprocess.Popen(
                [str(SPARK_CLASS), *command], env=env, stdout=said, stderr=subprocess.STDOUT
            )
            for command in commands
        ]
    try:
        until = time.monotonic() + PATIENCE_S
        while len(re.findall("Successfully registered with master", log.read_text())) < 2:
            assert time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.2)
        with mock.patch.dict(os.environ, PYSPARK_PYTHON=python):  # a driver says what tasks take
            yield master
    finally:
        for process in processes:
            process.kill()
            process.wait()
