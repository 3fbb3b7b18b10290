"""What `make site` checks of the pages that it has built."""

from pathlib import Path

import pytest
from tools.site.check import EXTERNAL_LINKS, Page, faults, leaves, main
from tools.site.diagrams import DIAGRAMS, PICTURES, records_of_two_clocks

PAGE = '<html><body id="top"><h1 id="a b">T</h1>{}</body></html>'


def built(tmp_path: Path, content: str, **others: str) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "index.html").write_text(PAGE.format(content))
    (tmp_path / "docs" / "other.html").write_text(PAGE.format('<a href="../index.html#top">'))
    for name, text in others.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "content",
    [
        '<a href="docs/other.html">',
        '<a href="docs/other.html#a%20b">',
        '<a href="#top">',
        '<a href="">',
        '<a href="https://example.org/page">',
        '<a href="mailto:someone@example.org">',
        '<img src="data:image/png;base64,AAAA">',
        '<link rel="canonical" href="https://example.org/">',
        '<style>p { background: url("data:image/png;base64,AAAA") }</style>',
        "<p>https://example.org/script.js</p>",
        "<pre><code>[a](b.md)</code></pre>",
    ],
)
def test_a_site_of_files_that_are_there_has_no_fault(tmp_path: Path, content: str) -> None:
    assert faults(built(tmp_path, content))[0] == []


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('<a href="gone.html">', "gone.html does not exist"),
        ('<a href="docs">', "docs does not exist"),
        ('<a href="docs/other.html#gone">', "no such anchor"),
        ('<a href="#gone">', "no such anchor"),
        ('<img src="gone.png">', "gone.png does not exist"),
        ('<a href="/docs/other.html">', "works on a server alone"),
        ("<p>see [the page](other.md)</p>", "shows Markdown"),
        ('<script src="https://example.org/x.js"></script>', "from another host"),
        ('<script src="//example.org/x.js"></script>', "from another host"),
        ('<img src="http://example.org/x.png">', "from another host"),
        ('<img srcset="x.png 1x, https://example.org/x.png 2x" src="#top">', "from another host"),
        ('<link rel="preload stylesheet" href="https://example.org/x.css">', "from another host"),
        ("<style>@import 'https://example.org/x.css'</style>", "from another host"),
        ('<p style="background: url(https://example.org/x.png)">', "from another host"),
        ('<object data="https://example.org/x.svg"></object>', "from another host"),
        ('<svg><use href="https://example.org/x.svg#a"/></svg>', "from another host"),
    ],
)
def test_a_fault_of_a_page_is_reported_with_its_name(
    tmp_path: Path, content: str, fault: str
) -> None:
    wrong, _ = faults(built(tmp_path, content))
    assert any(line.startswith("index.html: ") and fault in line for line in wrong), wrong


def test_fonts_of_style_sheets_and_pictures_come_from_the_site(tmp_path: Path) -> None:
    font = "@font-face { src: url(https://example.org/x.woff2) }"
    picture = f'<svg><style>{font}</style><image href="https://example.org/x.png"/></svg>'
    wrong, _ = faults(built(tmp_path, "", style_css=font, a_svg=picture))
    assert wrong == [
        "a.svg: loads https://example.org/x.png from another host",
        "a.svg: loads https://example.org/x.woff2 from another host",
        "style.css: loads https://example.org/x.woff2 from another host",
    ]


def test_links_to_other_hosts_are_listed_with_their_pages(tmp_path: Path) -> None:
    site = built(tmp_path, '<a href="https://example.org/page">')
    assert main(site) == 0
    assert (site / EXTERNAL_LINKS).read_text() == "https://example.org/page\tindex.html\n"


def test_an_empty_site_and_a_fault_end_with_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path) == 1
    assert "make site builds it" in capsys.readouterr().err
    assert main(built(tmp_path, '<a href="gone.html">')) == 1
    assert capsys.readouterr().err == "index.html: gone.html does not exist\n"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_what_it_draws(name: str) -> None:
    assert (PICTURES / f"{name}.svg").read_text() == DIAGRAMS[name](), "make pictures"


def test_times_find_the_records_that_offsets_leave_out() -> None:
    records = records_of_two_clocks()
    assert sum(record.is_exact for record in records) == 12
    assert sum(record.is_exact and record.is_in_offsets for record in records) == 4


def test_pictures_are_small_and_need_no_other_host() -> None:
    pictures = list(PICTURES.iterdir())
    assert sum(picture.stat().st_size for picture in pictures) < 300_000
    for picture in pictures:
        if picture.suffix == ".svg":
            assert not any(leaves(target) for target in Page(picture.read_text()).loads)
