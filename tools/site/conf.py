"""Configuration of the site: Sphinx reads the repository's pages where they are."""

from __future__ import annotations

import re
import shutil
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sphinx.ext.napoleon import Config, GoogleDocstring

from horolog import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "horolog"
author = "the authors of horolog"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "bench/BASELINE.md", "examples/README.md"]
exclude_patterns = [".*", "build", "dist", "site", "src", "tests", "tools"]

myst_heading_anchors = 4
highlight_language = "none"
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
maximum_signature_line_length = 72

html_theme = "furo"
html_title = f"horolog {__version__}"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = html_show_sourcelink = html_show_copyright = False

# Napoleon would take the first words of what is returned, up to a colon, for its type.
_STYLE: Final = Config(napoleon_use_ivar=True, napoleon_custom_sections=["Returns"])

NAVIGATION: Final = "## Where to go on"
"""Section of the README that lists every page, by what a reader wants to do."""
_GROUP = re.compile(r"^### (.+)$", re.MULTILINE)
_NAMED = re.compile(r"(?<![`/\w])`?(docs/[\w-]+)\.md`?")
_PAGE = re.compile(r"\[([^]]+)\]\(([\w/.-]+)\.md\)")


def add_navigation(_: Sphinx, page: str, source: list[str]) -> None:
    """Make a tree of contents of the README's list of pages, which the side bar shows."""
    if page != root_doc:
        return
    _, *groups = _GROUP.split(source[0].partition(NAVIGATION)[2])
    rows = "A first look <self>\n"
    for caption, pages in zip(groups[::2], groups[1::2], strict=True):
        rows += "".join(f"{title} <{name}>\n" for title, name in _PAGE.findall(pages))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{rows}```\n"
        rows = ""


def read_docstring(
    _: Sphinx, what: str, _name: str, _of: object, _options: object, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring: what is indented after a blank line is code."""
    if what == "module":  # for readers of the source: the page has an opening of its own
        lines.clear()
    if lines and lines[0].startswith("Alias for field number"):  # of a NamedTuple, by Python
        lines.clear()
    text, margin, is_code = list[str](), 0, False
    for before, line in zip(["", *lines], lines, strict=False):
        indent = len(line) - len(line.lstrip())
        if line and not (is_code and indent > margin):
            is_code = not before and bool(text) and indent >= margin + 4
            if is_code:
                text += [" " * margin + "::", ""]
            else:
                margin = indent
        text.append(line)
    linked = [_NAMED.sub(r":doc:`/\1`", line) for line in text]
    lines[:] = GoogleDocstring(linked, _STYLE).lines()


def shorten_signature(_: Sphinx, function: object, _is_bound: object) -> None:
    """Leave out what the command line reads from the annotations of a job's arguments."""
    signature = getattr(function, "__signature__", None)
    if not isinstance(signature, Signature):
        return
    arguments = list[Parameter]()
    for argument in signature.parameters.values():
        if hasattr(argument.annotation, "__metadata__"):
            argument = argument.replace(annotation=argument.annotation.__origin__)
        if callable(argument.default) and argument.default is not Parameter.empty:
            argument = argument.replace(default=_Name(argument.default.__name__))
        arguments.append(argument)
    function.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]


class _Name(str):
    """A default value that is shown by its name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def add_first_page(app: Sphinx, error: Exception | None) -> None:
    """Copy the first page to `index.html`, which servers and people open."""
    if error is None:
        shutil.copyfile(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-before-process-signature", shorten_signature)
    app.connect("build-finished", add_first_page)
