"""Put compiled modules into the zip file that PySpark's workers import from.

Spark puts `python/lib/pyspark.zip` first on the path of every Python worker. It holds sources
alone, so each worker compiles all that it imports. With compiled modules beside them a worker of
tests and the demo starts several times quicker.

    python tools/compile_pyspark_zip.py
"""

import py_compile
import shutil
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    (package,) = find_spec("pyspark").submodule_search_locations
    for path in Path(package, "python/lib").glob("*.zip"):
        add_compiled(path)


def add_compiled(path: Path) -> None:
    new = path.with_suffix(".new")  # an interrupt leaves the zip file as it was
    shutil.copyfile(path, new)
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(new, "a") as archive:
        have = set(archive.namelist())
        for name in sorted(have):
            if name.endswith(".py") and "/tests/" not in name and f"{name}c" not in have:
                source = archive.extract(name, scratch)
                compiled = py_compile.compile(
                    source,
                    dfile=f"{path}/{name}",
                    doraise=True,
                    # The zip file holds both: nothing to compare at each import.
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
                archive.write(compiled, f"{name}c")
    new.replace(path)


if __name__ == "__main__":
    main()
