"""Draw the diagrams of the pages from what they are about: tables, formats, and a real broker.

    python -m tools.site.diagrams

Writes `docs/pictures/*.svg`. A test draws them again and compares.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tools.site.drawing import (
    BLUE,
    GREEN,
    GREY,
    INK,
    PALE,
    PALE_BLUE,
    PALE_GREEN,
    PAPER,
    RED,
    Drawing,
)

from horolog.client import Client
from horolog.clock import MINUTE_MS, ManualClock, moment_ms
from horolog.record import LogRecord, build_batch
from horolog.record import batch as batch_format
from horolog.sources import scan
from horolog.testing import Broker

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURES: Final = ROOT / "docs" / "pictures"


def path_of_a_record() -> str:
    """Draw the table "The path of a record" of ARCHITECTURE.md."""
    _, _, section = (ROOT / "ARCHITECTURE.md").read_text().partition("## The path of a record")
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in re.findall(r"^\| \d.*$", section, re.MULTILINE)
    ]
    stages = [(row[1].partition(",")[0], re.findall(r"`([^`]+)`", row[2]), row[4]) for row in rows]
    out = re.findall(r"`(\w[\w/]*\.py)`", section.partition("\nOut:")[2])[:2]
    step = 62
    picture = Drawing(760, 50 + step * len(stages), "The path of a record through the packages")
    picture.text(20, 26, "what comes in", size=12, fill=GREY)
    picture.text(222, 26, "where", size=12, fill=GREY)
    picture.text(474, 26, "may refuse with", size=12, fill=GREY)
    for number, (what, modules, refusals) in enumerate(stages):
        y = 38 + number * step
        picture.box(16, y, 180, 46, fill=PALE_BLUE, line=BLUE)
        picture.text(106, y + 27, what, anchor="middle", size=12)
        picture.box(214, y, 250, 46)
        for line, module in enumerate(modules):
            place = y + 27 + 13 * line - 6.5 * (len(modules) - 1)
            picture.text(222, place, module, size=10, font="code")
        for line, refusal in enumerate(filter(None, re.split(r", ", refusals))):
            picture.text(474, y + 18 + 13 * line, refusal, size=10, font="code", fill=RED)
        if number:
            picture.line([(106, y - 16), (106, y - 1)], arrow=True)
    top, bottom = 38, 38 + step * (len(stages) - 1)
    picture.text(706, top - 12, "out", size=12, fill=GREY, anchor="middle")
    picture.line([(706, bottom + 20), (706, top + 42)], arrow=True)
    way_out = ["socket", *reversed(out), "segment files"]
    for number, name in enumerate(way_out):
        y = top + 24 + number * (bottom - top) / (len(way_out) - 1)
        folder, slash, module = name.rpartition("/")
        lines = [folder + slash, module] if folder else [module]
        picture.box(660, y - 16, 92, 32, fill=PALE_GREEN, line=GREEN)
        for line, text in enumerate(lines):
            place = y + 4 + 12 * line - 6 * (len(lines) - 1)
            picture.text(706, place, text, size=10, font="code", anchor="middle")
    return picture.svg()


class Shown(NamedTuple):
    """A record of the diagram of the two clocks."""

    appended_ms: int
    created_ms: int
    is_exact: bool
    is_in_offsets: bool


FROM, TO = "2026-11-20T09:00Z", "2026-11-20T10:00Z"
_LATE: Final[Mapping[int, int]] = {17: 37, 20: 22, 23: 49}
"""Minutes by which records come late, by their number."""
_AHEAD: Final[Mapping[int, int]] = {11: 40}
"""Minutes by which the clock of their producer is ahead."""
_EVERY_MS: Final = 6 * MINUTE_MS


def records_of_two_clocks() -> list[Shown]:
    """Append records to a broker, and find those of an hour by times and by offsets."""
    clock = ManualClock("2026-11-20T08:15Z")
    with Broker(clock=clock) as broker, Client(broker.bootstrap_servers) as client:
        for number in range(26):
            now_ms = clock.advance(_EVERY_MS)
            minutes = _AHEAD.get(number, 0) - _LATE.get(number, 1)
            record = LogRecord(now_ms + minutes * MINUTE_MS, None, b"v")
            client.produce("clicks", 0, build_batch([record]))
        bounds = [
            client.list_offsets({("clicks", 0): moment_ms(time)})["clicks", 0].offset
            for time in (FROM, TO)
        ]
        exact = scan(client, "clicks", from_ms=moment_ms(FROM), to_ms=moment_ms(TO))
        found = set(exact.read_all()["offset"].to_pylist())
        every = scan(client, "clicks", columns=("offset", "append_ms", "create_ms")).read_all()
    return [
        Shown(
            row["append_ms"],
            row["create_ms"],
            row["offset"] in found,
            bounds[0] <= row["offset"] < bounds[1],
        )
        for row in every.to_pylist()
    ]


def two_clocks() -> str:
    """Draw a log by both clocks, and which records of an hour two ways of reading find."""
    records = records_of_two_clocks()
    first_ms, last_ms = records[0].appended_ms - _EVERY_MS, records[-1].appended_ms + _EVERY_MS
    left, top, size = 86, 24, 380

    def x(ms: int) -> float:
        return round(left + (ms - first_ms) / (last_ms - first_ms) * size, 1)

    def y(ms: int) -> float:
        return round(top + size - (ms - first_ms) / (last_ms - first_ms) * size, 1)

    picture = Drawing(760, 460, "A log by both clocks: late records, and one from a clock ahead")
    picture.box(left, y(moment_ms(TO)), size, y(moment_ms(FROM)) - y(moment_ms(TO)), fill=PALE_BLUE)
    by_offsets = [record.appended_ms for record in records if record.is_in_offsets]
    begin, end = x(by_offsets[0] - _EVERY_MS // 2), x(by_offsets[-1] + _EVERY_MS // 2)
    for edge in (begin, end):
        picture.line([(edge, top), (edge, top + size)], color=RED, dashed=True)
    picture.line([(left, top), (left, top + size), (left + size, top + size)])
    for hour in range(moment_ms("2026-11-20T08:30Z"), last_ms, 30 * MINUTE_MS):
        text = f"{datetime.fromtimestamp(hour / 1000, UTC):%H:%M}"
        picture.text(x(hour), top + size + 18, text, size=11, fill=GREY, anchor="middle")
        picture.text(left - 8, y(hour) + 4, text, size=11, fill=GREY, anchor="end")
    picture.text(
        left + size / 2, top + size + 40, "append time: the broker's clock", anchor="middle"
    )
    picture.text(left - 70, top - 6, "create time: the producer's clock")
    for record in records:
        fill = GREEN if record.is_exact and record.is_in_offsets else RED
        picture.dot(
            x(record.appended_ms),
            y(record.created_ms),
            fill=fill if record.is_exact else PAPER,
            line=fill if record.is_exact else GREY,
        )
    in_both = sum(record.is_exact and record.is_in_offsets for record in records)
    missed = sum(record.is_exact and not record.is_in_offsets for record in records)
    picture.box(490, 60, 14, 14, fill=PALE_BLUE)
    picture.text(514, 72, "created from 09:00 to 10:00")
    picture.line([(497, 88), (497, 108)], color=RED, dashed=True)
    picture.text(514, 102, "offsets that Kafka's lookups give")
    picture.text(514, 120, "for 09:00 and for 10:00", size=12, fill=GREY)
    picture.dot(497, 148, fill=GREEN, line=GREEN)
    picture.text(514, 152, f"{in_both} found by offsets and by times")
    picture.dot(497, 178, fill=RED, line=RED)
    picture.text(514, 182, f"{missed} found by times alone")
    picture.dot(497, 208, fill=PAPER, line=GREY)
    picture.text(514, 212, "of other hours")
    for number, text in enumerate(
        (
            "One producer's clock is ahead. Its",
            "record is the first with a time of",
            "10:00 or later, so offsets end there.",
            "Late records lie below the diagonal.",
        )
    ):
        picture.text(490, 262 + 18 * number, text, size=12, fill=GREY)
    return picture.svg()


def following() -> str:
    """Draw the three roles of two clusters: follow, promote, demote."""
    picture = Drawing(760, 262, "Following a cluster: attach, promote, demote")
    panels = (
        ("1  attach", "horolog serve --follow", "source: leads", "shadow: follows", True),
        ("2  promote", "horolog promote", "source: lost", "promoted: leads", None),
        ("3  demote", "horolog follow --demote", "demoted: follows", "promoted: leads", False),
    )
    for number, (title, command, above, below, is_led_above) in enumerate(panels):
        left = 16 + number * 248
        picture.text(left, 28, title, bold=True)
        picture.text(left, 48, command, size=11, font="code", fill=BLUE)
        for y, name, leads in ((70, above, is_led_above), (166, below, is_led_above is not True)):
            is_lost = leads is None
            picture.box(
                left,
                y,
                130,
                44,
                fill=PALE_BLUE if leads else PAPER,
                line=PALE if is_lost else BLUE if leads else GREY,
            )
            picture.text(
                left + 65, y + 27, name, size=12, anchor="middle", fill=GREY if is_lost else INK
            )
        leader_y = 92 if is_led_above else 188
        picture.line([(left + 206, leader_y - 8), (left + 132, leader_y - 8)], arrow=True)
        picture.text(left + 140, leader_y - 14, "producers", size=11, fill=GREY)
        picture.line([(left + 132, leader_y + 10), (left + 206, leader_y + 10)], arrow=True)
        picture.text(left + 140, leader_y + 24, "consumers", size=11, fill=GREY)
        if is_led_above is not None:
            ends = [(left + 65, 115), (left + 65, 164)]
            picture.line(ends if is_led_above else ends[::-1], arrow=True)
            picture.text(left + 73, 143, "same offsets and bytes", size=11, fill=GREY)
        if is_led_above:
            picture.line([(left + 132, 190), (left + 206, 190)], arrow=True)
            picture.text(left + 140, 204, "consumers", size=11, fill=GREY)
    picture.text(
        16, 244, "An Apache Kafka can be the source; a horolog can be each of the two.", size=12
    )
    return picture.svg()


class Field(NamedTuple):
    """A field of an entry's header; without a size it fills the rest."""

    name: str
    size: int | None

    @property
    def is_time(self) -> bool:
        """True if the field holds a time of records."""
        return "timestamp" in self.name


_SIZES: Final = {"i64": 8, "i32": 4, "u32": 4, "i16": 2, "i8": 1}


def fields_of_v2() -> list[Field]:
    """Return the fields of a batch's header, from the docstring of the module that reads it."""
    text, _, _ = (batch_format.__doc__ or "").partition("Messages of formats v0 and v1")
    found = re.findall(r"(\d+)  ([iu]\d+) +(\w+)", text)
    fields = sorted((int(place), Field(name, _SIZES[kind])) for place, kind, name in found)
    for (place, field), (following_place, _) in zip(
        fields, [*fields[1:], (batch_format.HEADER_SIZE, None)], strict=True
    ):
        assert place + (field.size or 0) == following_place, field
    return [*(field for _, field in fields), Field("records", None)]


def fields_of_messages() -> dict[str, list[Field]]:
    """Return the fields of messages of v0 and v1, from the table of docs/formats.md."""
    found = re.findall(
        r"^\| (\d+|\W) \| (\d+) \| ([iu]\d+|bytes) \| ([\w-]+(?: of the \w+)?)",
        (ROOT / "docs" / "formats.md").read_text(),
        re.MULTILINE,
    )
    rows = [
        (old, Field("key, value" if kind == "bytes" else name, _SIZES.get(kind)))
        for old, _, kind, name in found
    ]
    return {
        "v0": [field for old, field in rows if old.isdigit()],
        "v1": [field for _, field in rows],
    }


def formats() -> str:
    """Draw the headers of the three record formats, byte by byte, with their times marked."""
    lines = [(f"{name}, a message", fields) for name, fields in fields_of_messages().items()]
    batch = fields_of_v2()
    cut = [0, 7, 11, len(batch)]
    lines += [
        ("v2, a batch" if not begin else "", batch[begin:end]) for begin, end in pairwise(cut)
    ]
    byte, left, height = 21.5, 24, 52
    picture = Drawing(760, 434, "Headers of the record formats v0, v1 and v2")
    place, y = 0, 0
    for title, fields in lines:
        if title:
            y, place = y + 34, 0
            picture.text(left, y - 6, title, bold=True)
        x = float(left)
        for field in fields:
            width = 740 - x if field.size is None else field.size * byte
            fill, line = (PALE_GREEN, GREEN) if field.is_time else (PALE_BLUE, BLUE)
            picture.box(x, y, width, height, fill=fill, line=line)
            picture.text(x + 2, y + 9, str(place), size=8, fill=GREY)
            name = re.sub(r"(\w+) of the (\w+)", r"\2 \1", field.name.replace("_", " "))
            if field.size == 1:
                picture.text(x + width / 2 + 3, y + 30, name, size=8, anchor="middle", turn=True)
                name = ""
            names = [name] if len(name) * 6 < width else name.split()
            for number, text in enumerate(names):
                base = y + 33 + 11 * number - 5 * (len(names) - 1)
                size = 10 if len(text) * 6 < width else 8
                picture.text(x + width / 2, base, text, size=size, anchor="middle")
            place, x = place + (field.size or 0), x + width
        y += height + 4
    picture.box(left, y + 14, 12, 12, fill=PALE_GREEN, line=GREEN)
    picture.text(left + 18, y + 24, "times of records, in milliseconds", size=11, fill=GREY)
    note = "small numbers: the byte where a field begins"
    picture.text(left + 240, y + 24, note, size=11, fill=GREY)
    return picture.svg()


DIAGRAMS: Final = {
    "path-of-a-record": path_of_a_record,
    "two-clocks": two_clocks,
    "following": following,
    "formats": formats,
}


def main() -> None:
    """Write all diagrams."""
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
