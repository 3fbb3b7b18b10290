"""Other constants than a package has, wherever its modules have imported them."""

import sys
from typing import Any

import pytest


def override(patch: pytest.MonkeyPatch, package: str, **values: Any) -> None:
    """Replace constants in all loaded modules of a package, each of which means the same.

    A test that lowers a limit names the package alone, so that the limit may move within it.
    """
    for name, value in values.items():
        having = [
            module
            for path, module in list(sys.modules.items())
            if f"{path}.".startswith(f"{package}.") and name in vars(module)
        ]
        assert having, f"no loaded module of {package} has {name}"
        first = vars(having[0])[name]
        assert all(vars(module)[name] == first for module in having), f"{name} means several things"
        for module in having:
            patch.setattr(module, name, value)
