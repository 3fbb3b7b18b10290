"""Writes commit-times.csv from the history of a repository: `git log`, in the order of commits.

Run: python make_commit_times.py PATH > commit-times.csv
"""

import subprocess
import sys

LAST = 2_000

if __name__ == "__main__":
    log = ["git", "-C", sys.argv[1], "log", "--reverse", f"--max-count={LAST}"]
    log += ["--no-merges", "--format=%h,%at000,%ct000"]
    print("commit,written_ms,committed_ms", flush=True)
    sys.exit(subprocess.run(log, check=False).returncode)
