"""Measure the source: size, ways in, names and words; compare with the limits in tools/house.tsv.

    python tools/house.py              print every measure beside its limit
    python tools/house.py --check      exit 1 where a measure exceeds its limit (`make lint`)
    python tools/house.py --tighten    lower limits to what is measured; none is raised

A commit that must exceed a limit raises it by hand and says why in the column of reasons.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "horolog"
TESTS = ROOT / "tests"
LIMITS = ROOT / "tools" / "house.tsv"

# Public names on the way of a batch's bytes from a request to a `.log`, in the order of the way.
# `test_house` compares them with what calls the writers of `.log` files.
DOORS = (
    "broker/handlers/produce.py:produce",
    "broker/handlers/produce_single.py:produce_single",
    "broker/partition.py:Partition.append",
    "broker/scheduling/write_queue.py:WriteQueue.append",
    "broker/scheduling/write_queue.py:WriteQueue.append_own",
    "storage/logs/appendable.py:AppendableLog.append",
    "storage/logs/writer.py:LogWriter.append",
    "storage/segments/active.py:ActiveSegment.append",
)

# Functions that write whole segments through the writer, into files that no log has open yet.
BUILDERS = (
    "jobs/archives/segments.py:_Log.add",
    "jobs/loading/staging.py:_PartitionWriter.add",
    "storage/logs/replacing.py:write_cleaned",
    "storage/offline/converting.py:_Segment.steps",
)

WRITERS = {"LogWriter": "storage/logs/writer.py", "ActiveSegment": "storage/segments/active.py"}
# Names that hold a writer where no annotation says so.
HOLDERS = {"writer", "_writer", "active", "_active"}

POINTERS = {"Of", "As", "What", "Whose", "See", "Which", "Who"}
GENERATED = {"settings.md", "conformance.md", "compatibility.md", "spark-options.md"}


Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def modules(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield each module below a folder with its syntax tree."""
    for path in sorted(root.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def measure() -> dict[str, int]:
    """Return every measure by name."""
    trees = list(modules(SOURCE))
    return {
        **_sizes(trees),
        **_shapes(trees),
        **_names(trees),
        "doors into a log": len(DOORS),
        "builders of segments": len(BUILDERS),
        **_tests(),
        **_words(),
    }


def _sizes(trees: list[tuple[Path, ast.Module]]) -> dict[str, int]:
    """Count AST nodes by package; lines and files in all."""
    packages: Counter[str] = Counter()
    for path, tree in trees:
        parts = path.relative_to(SOURCE).parts
        packages[parts[0] if len(parts) > 1 else "modules"] += sum(1 for _ in ast.walk(tree))
    return {
        "nodes": packages.total(),
        "lines": sum(path.read_text().count("\n") for path, _ in trees),
        "files": len(trees),
        **{f"nodes {package}": count for package, count in sorted(packages.items())},
    }


def _shapes(trees: list[tuple[Path, ast.Module]]) -> dict[str, int]:
    """Count callbacks, long signatures, starred literals and vague docstrings."""
    callbacks = starred = long = vague = 0
    for _, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, Function):
                parameters = _parameters(node)
                callbacks += sum("Callable" in _text(one.annotation) for one in parameters)
                long += len(parameters) >= 8
            elif isinstance(node, ast.Call):
                starred += any(
                    isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple | ast.List)
                    for one in node.args
                )
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                vague += text.split()[0].strip(",.:;") in POINTERS
    return {
        "parameters annotated Callable": callbacks,
        "calls with a starred literal": starred,
        "functions with 8 or more parameters": long,
        "docstrings that begin with Of, As, What, Whose, See, Which or Who": vague,
    }


def _parameters(function: Function) -> list[ast.arg]:
    """Return the parameters of a function without `self` and `cls`."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [one for one in every if one.arg not in {"self", "cls"}]


def _text(node: ast.AST | None) -> str:
    return ast.unparse(node) if node is not None else ""


def _names(trees: list[tuple[Path, ast.Module]]) -> dict[str, int]:
    """Count class names defined twice, and classes imported under another name."""
    return {
        "class names defined more than once": len(shared_class_names(trees)),
        "classes imported under another name": sum(
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("horolog")
            and sum(
                one.asname not in {None, one.name} and one.name[:1].isupper() for one in node.names
            )
            for _, tree in trees
            for node in ast.walk(tree)
        ),
    }


def shared_class_names(trees: list[tuple[Path, ast.Module]]) -> dict[str, list[str]]:
    """Return the modules of each class name that more than one class has."""
    homes: dict[str, list[str]] = {}
    for path, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    return {name: places for name, places in sorted(homes.items()) if len(places) > 1}


def _tests() -> dict[str, int]:
    """Count what ties tests to the place of a module."""
    imported: set[str] = set()
    replaced = 0
    for path, tree in modules(TESTS):
        replaced += sum("setattr(" in line for line in path.read_text().splitlines())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("horolog"):
                imported.add(node.module or "")
            elif isinstance(node, ast.Import):
                imported.update(one.name for one in node.names if one.name.startswith("horolog"))
    return {"modules imported by tests": len(imported), "lines of tests with setattr(": replaced}


def _words() -> dict[str, int]:
    """Count the words of each page that is written by hand."""
    pages = [
        *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED),
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        ROOT / "bench" / "BASELINE.md",
    ]
    words = {f"words {page.relative_to(ROOT)}": len(page.read_text().split()) for page in pages}
    in_docs = sum(count for name, count in words.items() if name.startswith("words docs/"))
    return {"words of docs": in_docs, **words}


def callers_of_writers() -> set[str]:
    """Return the public functions, outside the writers, that call what writes to a `.log`.

    A private function counts as its public callers in the same module do.
    """
    methods = {one.rpartition(".")[2] for one in DOORS if one.split(":")[0] in WRITERS.values()}
    callers: set[str] = set()
    for path, tree in modules(SOURCE):
        place = str(path.relative_to(SOURCE))
        if place not in WRITERS.values():
            callers.update(f"{place}:{name}" for name in public_callers(tree, methods))
    return callers


def public_callers(tree: ast.Module, methods: set[str]) -> set[str]:
    """Return the names of public functions of a module from which a writer's method is called."""
    functions = dict(_functions(tree))
    reached = {name for name, one in functions.items() if _calls_writer(one, methods)}
    public: set[str] = set()
    seen: set[str] = set()
    while reached - seen:
        name = (reached - seen).pop()
        seen.add(name)
        short = name.rpartition(".")[2]
        users = {user for user, one in functions.items() if user != name and _uses(one, short)}
        if short.startswith("_") and users:
            reached |= users
        else:
            public.add(name)
    return public


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, Function):
                    yield f"{node.name}.{one.name}", one


def _calls_writer(function: Function, methods: set[str]) -> bool:
    """Return whether a function calls a writing method on a receiver that is a writer."""
    holders = HOLDERS | {
        one.arg for one in _parameters(function) if _text(one.annotation).strip("'\"") in WRITERS
    }
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
        and _text(node.func.value).rpartition(".")[2] in holders
        for node in ast.walk(function)
    )


def _uses(function: Function, name: str) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.Name) and node.id == name)
        for node in ast.walk(function)
    )


def defined() -> set[str]:
    """Return every function of the source in the form in which DOORS lists them."""
    return {
        f"{path.relative_to(SOURCE)}:{name}"
        for path, tree in modules(SOURCE)
        for name, _ in _functions(tree)
    }


def read_limits() -> dict[str, tuple[int, str]]:
    """Return the limit of each measure and the reason for it."""
    rows = [line.split("\t") for line in LIMITS.read_text().splitlines()[1:]]
    return {name: (int(limit), reason) for name, limit, reason in rows}


def exceeded(measures: dict[str, int], limits: dict[str, tuple[int, str]]) -> list[str]:
    """Return a sentence for each measure that has no limit or exceeds it."""
    sentences = []
    for name, value in measures.items():
        if name not in limits:
            sentences.append(f"{name}: {value}, and {LIMITS.name} has no row for it.")
        elif value > limits[name][0]:
            sentences.append(
                f"{name}: {value}, limit {limits[name][0]}. Take something out, or raise the row "
                f"in {LIMITS.name} and give the reason."
            )
    return sentences


def main() -> None:
    """Print the measures, check them or lower the limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is exceeded")
    parser.add_argument("--tighten", action="store_true", help="lower limits to what is measured")
    arguments = parser.parse_args()
    measures = measure()
    limits = read_limits() if LIMITS.exists() else {}
    if arguments.tighten:
        rows = ["measure\tlimit\treason"]
        for name, value in measures.items():
            limit, reason = limits.get(name, (value, ""))
            rows.append(f"{name}\t{min(limit, value)}\t{reason}")
        LIMITS.write_text("\n".join(rows) + "\n")
    elif arguments.check:
        if sentences := exceeded(measures, limits):
            sys.exit("\n".join(sentences))
    else:
        for name, value in measures.items():
            print(f"{name:<66}{value:>9,}{limits.get(name, (0, ''))[0]:>9,}")


if __name__ == "__main__":
    main()
