"""The README's first look as a script of bash, for a folder that has nothing in it yet."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
_LINE = re.compile(r"^\$ (.*?)(?: +#.*)?$", re.MULTILINE)


def first_look() -> str:
    """Return the lines after the installation; brokers are waited for, and stopped at the end."""
    section = README.read_text().partition("## A first look\n")[2].partition("\n## ")[0]
    _, installs, rest = section.partition("$ pip install ")
    assert installs, "the README installs nothing"
    script, brokers = [], 0
    for line in _LINE.findall(rest):
        if line.endswith("&"):
            brokers += 1
            said = f"broker-{brokers}.txt"
            script += [
                f"{line.removesuffix('&')} > {said} 2>&1 &",
                f"until grep -q '^ready ' {said}; do kill -0 $!; sleep 0.1; done",
            ]
        else:
            script.append(line)
    assert brokers == 2
    stops = [f"kill %{number}; wait %{number}" for number in range(brokers, 0, -1)]
    return "\n".join([*script, *stops, ""])
