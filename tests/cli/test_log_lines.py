"""Lines of the broker's log: it is visible that the broker wrote them."""

import json
import logging
import sys

from horolog.cli.log_lines import JsonLines, LogLines


def formatted(message: str, *args: object, exc_info: bool = False) -> list[str]:
    record = logging.LogRecord(
        "horolog.test", logging.WARNING, "", 1, message, args, sys.exc_info() if exc_info else None
    )
    return LogLines("%(levelname)s %(name)s: %(message)s").format(record).split("\n")


def test_a_message_is_one_line_whatever_it_names() -> None:
    assert formatted("no topic %s", "a\nERROR horolog: forged\x1b[2J\u202e") == [
        r"WARNING horolog.test: no topic a\nERROR horolog: forged\x1b[2J\u202e"
    ]


def test_what_is_readable_stays_as_it_is() -> None:
    assert formatted("café \\ %d %s", 5, "é") == ["WARNING horolog.test: café \\ 5 é"]


def test_a_message_has_an_end() -> None:
    (line,) = formatted("%s", "x" * 1_000_000)
    assert len(line) < 2100
    assert line.endswith("...")


def test_lines_of_a_traceback_are_reported_from_lines_of_the_log() -> None:
    try:
        raise ValueError("first\nERROR horolog: forged")
    except ValueError:
        first, *rest = formatted("a bug", exc_info=True)
    assert first == "WARNING horolog.test: a bug"
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_no_line_has_credentials_or_control_characters() -> None:
    uri, shown = "s3://a:se/cret@bucket/x", "s3://[hidden]@bucket/x"
    assert formatted("no %s", uri) == [f"WARNING horolog.test: no {shown}"]
    try:
        raise ValueError(f"{uri}\x1b[2J")
    except ValueError as error:
        record = logging.LogRecord(
            *("horolog.test", logging.WARNING, "", 1, "no %s", (uri,)),
            (type(error), error, error.__traceback__),
        )
        assert formatted("a bug", exc_info=True)[-1] == f"    ValueError: {shown}\\x1b[2J"
    line = JsonLines().format(record)
    assert "cret" not in line
    assert json.loads(line)["message"] == f"no {shown}"


def test_json_lines_hold_any_message_and_traceback_in_one_line_each() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        cause = (type(error), error, error.__traceback__)
    record = logging.LogRecord(
        "horolog.broker", logging.WARNING, "", 0, "from %r: \N{SNOWMAN}\n\x1b[0m", ("c\n",), cause
    )
    record.created = 1_700_000_000.25
    line = JsonLines().format(record)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "horolog.broker",
        "message": "from 'c\\n': \N{SNOWMAN}\n\x1b[0m",
        "exception": JsonLines().formatException(cause),
    }
    record.msg, record.args = "%s", ("x" * 1_000_000,)
    assert len(json.loads(JsonLines().format(record))["message"]) == 2_003
