"""Check built pages: no dead link, no raw Markdown, nothing of another host; list what leaves.

    python -m tools.site.check site

Prints each fault with its page and exits with 1 if any exists. What other hosts serve is listed in
`external-links.txt` beside the pages, and is not fetched.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

EXTERNAL_LINKS: Final = "external-links.txt"
_STYLE_URL = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
_CODE: Final = frozenset({"code", "pre", "script", "style"})
_LOADED_BY_LINK: Final = frozenset({"icon", "manifest", "preload", "stylesheet", "modulepreload"})


class Page(HTMLParser):
    """What a page offers, links to and loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.links = set[str]()
        """Targets that a reader can click."""
        self.loads = set[str]()
        """Targets that a browser fetches with the page."""
        self.markdown = list[str]()
        """Texts that show a link's brackets: its Markdown was not understood."""
        self._is_style = False
        self._codes = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the targets and anchors of an element."""
        given = {name: value or "" for name, value in attrs}
        self._is_style = tag == "style"
        self._codes += tag in _CODE
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        self.loads.update(_in_style(given.get("style", "")))
        if "href" in given:
            kinds = set(given.get("rel", "").split())
            is_loaded = tag in {"use", "image"} or (tag == "link" and kinds & _LOADED_BY_LINK)
            (self.loads if is_loaded else self.links).add(given["href"])
        self.loads.update(given[name] for name in ("src", "data", "poster") if name in given)
        for each in given.get("srcset", "").split(","):
            self.loads.update(each.split()[:1])

    def handle_endtag(self, tag: str) -> None:
        """Note the end of code."""
        self._codes -= tag in _CODE

    def handle_data(self, data: str) -> None:
        """Note what a style sheet in the page loads, and Markdown in a text."""
        if self._is_style:
            self.loads.update(_in_style(data))
        elif not self._codes and "](" in data:
            self.markdown.append(data.strip())


def _in_style(text: str) -> Iterator[str]:
    for found in _STYLE_URL.finditer(text):
        yield found[1] or found[2]


def faults(site: Path) -> tuple[list[str], dict[str, set[str]]]:
    """Return the faults of a site, and its links to other hosts with the pages that have them."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    wrong, external = list[str](), defaultdict[str, set[str]](set)
    if not pages:
        wrong.append(f"{site} has no page: make site builds it")
    for path, page in pages.items():
        name = str(path.relative_to(site.resolve()))
        wrong += [
            f"{name}: loads {target} from another host" for target in page.loads if leaves(target)
        ]
        wrong += [f"{name}: shows Markdown: {text:.80}" for text in page.markdown]
        for target in page.links | page.loads:
            if not leaves(target):
                wrong += [f"{name}: {what}" for what in _dead(path, target, pages)]
            elif target in page.links:
                external[target].add(name)
    for pattern in ("*.css", "*.svg"):
        for path in sorted(site.rglob(pattern)):
            text = path.read_text()
            loads = set(_in_style(text)) | (Page(text).loads if pattern == "*.svg" else set())
            wrong += [
                f"{path.relative_to(site)}: loads {target} from another host"
                for target in loads
                if leaves(target)
            ]
    return sorted(wrong), external


def leaves(target: str) -> bool:
    """Return whether a target is on another host, or needs a program other than the browser."""
    parts = urlsplit(target)
    return bool(parts.netloc) or parts.scheme not in {"", "data"}


def _dead(page: Path, target: str, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield why a target of a page does not exist."""
    parts = urlsplit(target)
    if parts.scheme == "data":
        return
    if parts.path.startswith("/"):
        yield f"{target} works on a server alone, not from files"
        return
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not path.is_file():
        yield f"{target} does not exist"
    elif parts.fragment and path in pages and unquote(parts.fragment) not in pages[path].anchors:
        yield f"{target} has no such anchor"


def main(site: Path) -> int:
    """Check a site, write its list of external links, and return an exit code."""
    wrong, external = faults(site)
    rows = [f"{target}\t{' '.join(sorted(names))}\n" for target, names in sorted(external.items())]
    (site / EXTERNAL_LINKS).write_text("".join(rows))
    for line in wrong:
        print(line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
