"""A picture as SVG: boxes, lines and text, which a browser shows without a network."""

from typing import Final
from xml.sax.saxutils import escape

INK, GREY, PALE, PAPER = "#1f2933", "#7b8794", "#e4e7eb", "#ffffff"
BLUE, RED, GREEN = "#2b6cb0", "#c53030", "#2f855a"
PALE_BLUE, PALE_GREEN = "#ebf4ff", "#e6f6ec"
_FONTS: Final = {"text": "system-ui, sans-serif", "code": "ui-monospace, monospace"}


class Drawing:
    """Shapes on white paper, in the order in which they are drawn."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">\n<title>{escape(title)}</title>\n'
            '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker>\n'
        )
        self._shapes = list[str]()
        self.box(0, 0, width, height, fill=PAPER, line=PALE)

    def box(
        self, x: float, y: float, w: float, h: float, *, fill: str = PAPER, line: str = GREY
    ) -> None:
        """Draw a rectangle."""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="3" fill="{fill}" '
            f'stroke="{line}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 13,
        fill: str = INK,
        font: str = "text",
        anchor: str = "start",
        bold: bool = False,
        turn: bool = False,
    ) -> None:
        """Write a line whose base line is at `y`, or upwards if it is turned."""
        weight = ' font-weight="bold"' if bold else ""
        weight += f' transform="rotate(-90 {x:g} {y:g})"' if turn else ""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" font-family="{_FONTS[font]}" font-size="{size}" '
            f'fill="{fill}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
        )

    def line(
        self,
        points: list[tuple[float, float]],
        *,
        color: str = GREY,
        arrow: bool = False,
        dashed: bool = False,
    ) -> None:
        """Draw a line through points, with a tip at its end if it is an arrow."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        ends = ' marker-end="url(#tip)"' if arrow else ""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"'
            f"{dashes}{ends}/>"
        )

    def dot(self, x: float, y: float, *, fill: str, line: str) -> None:
        """Draw a small circle."""
        self._shapes.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{fill}" stroke="{line}" '
            'stroke-width="1.5"/>'
        )

    def svg(self) -> str:
        """Return the picture."""
        return self._head + "\n".join(self._shapes) + "\n</svg>\n"
