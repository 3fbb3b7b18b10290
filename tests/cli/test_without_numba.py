"""A broker in a Python that has no numba."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from command_runner import run_command
from patience import PATIENCE_S

from horolog.record import WITHOUT_NUMBA

_SERVE = """
import sys
sys.modules["numba"] = None
sys.argv = ["horolog", "serve", "--port", "0", "--log-dir", sys.argv[1]]
from horolog.cli import main
main()
"""


def test_a_broker_without_numba_serves_and_prints_what_that_costs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SERVE, str(tmp_path / "log")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            address = process.stdout.readline().split()[1]
            sent = run_command("produce", "t", "-b", address, "--timestamp", "-1h", stdin="x\ny\n")
            assert sent.code == 0, sent.err
            found = run_command("consume", "t", "-b", address, "--from-time", "-2h")
            assert found.out.count("\n") == 2, found
            health = run_command("health", "-b", address)
            assert health.code == 0
            assert health.out.endswith(f"broker 1: {WITHOUT_NUMBA}\n")
            (broker,) = json.loads(run_command("health", "-b", address, "--json").out)["brokers"]
            assert broker["without_numba"] == WITHOUT_NUMBA
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
            lines = process.stderr.read()
        finally:
            process.kill()
    assert lines.count(WITHOUT_NUMBA) == 1
    assert "Traceback" not in lines
