"""`docs/settings.md`, made from the tables: `python -m horolog.config.page > docs/settings.md`."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping

from horolog.config.setting import Setting, Status
from horolog.config.tables import broker_settings, topic_settings

_OPENING = """\
<!-- Made by `python -m horolog.config.page > docs/settings.md`; do not edit. -->
# Settings

Every topic and broker setting of Apache Kafka 4, those that Kafka 4 removed and people still have
in their files, and horolog's own (`horolog.*`). What comes of each here:

- **obeyed**: it makes a difference, the one Kafka documents. `tests/settings` shows which, of each,
  given at the start, given while running where that is allowed, and remembered over a restart.
- **accepted**: its value is checked, kept and shown, and changes nothing; the reason stands
  beside it.
- **refused**: ignoring it would be dangerous, so only its default is taken; anything else is an
  error.

An unknown name is an error, and a bad value too: the message names the setting, the value and
what is allowed. Topic settings are given when a topic is created or later (`horolog topics
alter`, or any Kafka admin client); broker settings in a file (`horolog serve --config
server.properties`), on the command line (`--set NAME=VALUE`, stronger than the file), or, unless
read-only, while the broker runs.

A topic setting is looked for first among the topic's own, then among the broker settings it falls
back to (changed while running for this broker, then for the cluster, then as started), then its
default stands.

**Bounds on time.** `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms` win
over the deprecated `message.timestamp.difference.max.ms` (KIP-32 called it
`max.message.time.difference.ms`; both names are taken), unless their value is
9223372036854775807, which lets the difference decide, as in Kafka 3.6 to 3.9. A difference that
is given also wins over a bound that is not: Kafka 4's default of one hour for `after` does not
hide it.

**Small segments.** Kafka 4 refuses `segment.bytes` below 1 MiB (KIP-1030) and has
`internal.segment.bytes` for its own tests. Here `segment.bytes` may be as small as in Kafka 3,
because users have tests too, and `internal.segment.bytes` wins over it as in Kafka 4.
"""


def settings_page() -> str:
    """The whole page, in Markdown."""
    topics, brokers = topic_settings(), broker_settings()
    return "\n".join(
        (
            _OPENING,
            f"## Topic settings\n\n{_counts(topics)}\n",
            "| setting | type | default | allowed | falls back to | here | what it is for |",
            "|---|---|---|---|---|---|---|",
            *_rows(topics, of_topics=True),
            "",
            f"## Broker settings\n\n{_counts(brokers)}\n",
            "| setting | type | default | allowed | may change | here | what it is for |",
            "|---|---|---|---|---|---|---|",
            *_rows(brokers, of_topics=False),
            "",
        )
    )


def _counts(table: Mapping[str, Setting]) -> str:
    counts = Counter(setting.status for setting in table.values())
    return ", ".join(f"{counts[status]} {status.value}" for status in Status) + "."


def _rows(table: Mapping[str, Setting], *, of_topics: bool) -> Iterable[str]:
    for name in sorted(table):
        setting = table[name]
        fifth = ", ".join(_code(n) for n in setting.falls_back_to)
        cells = (
            _name(setting),
            setting.kind.name.lower(),
            _code(setting.default) if setting.default is not None else "",
            setting.rule.words if setting.rule else "",
            fifth if of_topics else setting.update.value,
            _fate(setting),
            setting.doc,
        )
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _name(setting: Setting) -> str:
    also = "".join(f", {_code(alias)}" for alias in setting.aliases)
    mark = " (gone in Kafka 4)" if setting.gone else " (internal)" if setting.internal else ""
    return f"{_code(setting.name)}{also}{mark}"


def _fate(setting: Setting) -> str:
    refusals = "".join(
        f"; {_code(value)} is refused: {why}" for value, why in setting.refused_values.items()
    )
    if setting.status is Status.OBEYED:
        return f"**obeyed**{refusals}"
    word = "accepted" if setting.status is Status.ACCEPTED else "**refused**"
    return f"{word}: {setting.why}{refusals}"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    sys.stdout.write(settings_page())
