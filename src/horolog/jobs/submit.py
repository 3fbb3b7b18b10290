"""A script for spark-submit: `spark-submit $(horolog spark script) JOB --source ...`."""

import sys

# Spark puts the script's directory first; its modules would hide others of the same names.
sys.path[:] = [path for path in sys.path if not path.rstrip("/").endswith("horolog/jobs")]

if __name__ == "__main__":
    # The layer above: this file is a program, not a module that others import.
    from importlib import import_module

    sys.argv.insert(1, "spark")
    import_module("horolog.cli").main()
