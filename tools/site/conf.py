"""Configuration of the site: Sphinx reads the repository's pages where they are."""

from __future__ import annotations

import os
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
smartquotes = False  # `--option` in a text has two hyphens
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

ROOT: Final = Path(__file__).resolve().parents[2]
NAVIGATION: Final = "## Where to go on"
"""Section of the README that lists every page, by what a reader wants to do."""
_GROUP = re.compile(r"^### (.+)$", re.MULTILINE)
_NAMED = re.compile(r"(?<!\[)`(docs/[\w-]+)\.md`(?!])")
_NAMED_IN_DOCSTRING = re.compile(r"(?<![`/\w])`?(docs/[\w-]+)\.md`?(?!\w)")
_LINKED = re.compile(r"\[`?[\w/-]+\.md`?\]\(([\w/.-]+)\.md([#\w-]*)\)")
_LONG_NAME = re.compile(r"[\w.,/:-]{12,}(?![^<]*>)")
_BREAKS = re.compile(r"([.,_/:]+)(?=\w)")
_CODE_BLOCK = re.compile(r"(^(`{3,})[^\n]*\n.*?^\2$)", re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"\[([^]]+)\]\(([\w/.-]+)\.md\)")


def groups_of_pages() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the README's groups of pages: captions, each with titles and names of its pages."""
    _, _, navigation = Path(ROOT, "README.md").read_text().partition(NAVIGATION)
    _, *groups = _GROUP.split(navigation)
    return [
        (caption, _PAGE.findall(pages))
        for caption, pages in zip(groups[::2], groups[1::2], strict=True)
    ]


TITLES: Final = {name: title for _, pages in groups_of_pages() for title, name in pages}


def read_page(_: Sphinx, page: str, source: list[str]) -> None:
    """Show links between pages by their titles, and in the side bar the README's list of pages."""
    folder = Path(page).parent

    def titled(link: re.Match[str]) -> str:
        target = os.path.normpath(folder / link[1]).lstrip("/")
        return f"[{TITLES[target]}](/{target}.md{link[2]})" if target in TITLES else link[0]

    parts = _CODE_BLOCK.split(source[0])
    for number in range(0, len(parts), 3):  # between blocks of code, each with its fence
        text = _NAMED.sub(r"[\1.md](/\1.md)", parts[number])
        parts[number] = _LINKED.sub(titled, text)
    del parts[2::3]
    if page == root_doc:
        rows = "A first look <self>\n"
        for caption, pages in groups_of_pages():
            rows += "".join(f"{title} <{name}>\n" for title, name in pages)
            parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{rows}```\n")
            rows = ""
    source[0] = "".join(parts)


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
    linked = [_NAMED_IN_DOCSTRING.sub(_as_role, line) for line in text]
    lines[:] = GoogleDocstring(linked, _STYLE).lines()


def _as_role(name: re.Match[str]) -> str:
    return f":doc:`{TITLES.get(name[1], name[1])} </{name[1]}>`"


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


def break_names(
    _: Sphinx, _page: str, _template: str, context: dict[str, str], _of: object
) -> None:
    """Let long names of settings and files break after a dot, a slash or an underscore."""
    body = context.get("body", "").replace("> -- ", ">: ")  # behind an argument and an error
    context["body"] = _LONG_NAME.sub(lambda name: _BREAKS.sub(r"\1<wbr>", name[0]), body)


def add_first_page(app: Sphinx, error: Exception | None) -> None:
    """Copy the first page to `index.html`, which servers and people open."""
    if error is None:
        shutil.copyfile(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-before-process-signature", shorten_signature)
    app.connect("html-page-context", break_names)
    app.connect("build-finished", add_first_page)
