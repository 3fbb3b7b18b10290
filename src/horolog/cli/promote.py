"""`horolog promote`: have a broker lead the topics that it follows."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from horolog.cli.connecting import HorologBrokers
from horolog.cli.options import Json, with_options
from horolog.cli.screen import say, show
from horolog.cli.working import working
from horolog.client import Client, NoAnswer
from horolog.errors import Misconfigured
from horolog.results import Shown, Table
from horolog.wire.questions import FOLLOWING, FollowedState, PromotedEntry

app = typer.Typer(no_args_is_help=True)


@app.command(no_args_is_help=True)
@with_options
def promote(
    brokers: HorologBrokers,
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC...")] = None,
    of_all: Annotated[
        bool, typer.Option("--all", help="All topics; nothing is followed any more.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Have a broker lead topics that it follows; the source need not be there.

    Producers are accepted at once, in a leader epoch after all known ones. Transactions that the
    source had decided end that way, if the decision has arrived here; open ones are aborted.
    Transactions that end differently than at the source are listed. Offsets of groups beyond the
    copied records are set to the next existing offset, and listed. The topics are not followed
    again, also after a restart. Rights, quotas and passwords of the source that are not here are
    named. The exit code is 0 also if offsets were set or records are missing.
    A second promotion changes nothing.
    """
    if bool(topics) == of_all:
        raise Misconfigured("Give the names of topics, or --all")
    with brokers.connect() as client:
        following = client.ask.needed(FOLLOWING)
        names = list(dict.fromkeys(topics or ()))
        if of_all:
            left = (
                entry for entry in following.entries if entry.state is not FollowedState.PROMOTED
            )
            names = list(dict.fromkeys(entry.topic for entry in left))
            followed = {entry.topic for entry in following.entries if entry.partition is not None}
            names = [name for name in names if name in followed]
        try:
            _promote(client, names, of_all=of_all)
        finally:
            _show(client.promoted(names) if names else [], as_json=as_json)
        for note in following.notes:
            say(f"Not copied: {note}")


def _promote(client: Client, names: Sequence[str], *, of_all: bool) -> None:
    """Promote topics, and ask again until all are led, which may take minutes."""
    with working("promote", "topics") as work:
        total = left = len(names)
        while True:
            work(total - left, total)
            try:
                client.promote(None if of_all else names)
            except NoAnswer:
                entries, before = client.ask.needed(FOLLOWING).entries, left
                led = {entry.topic for entry in entries if entry.state is FollowedState.PROMOTED}
                left = sum(name not in led for name in names)
                if left == before:
                    raise
            else:
                return


def _show(entries: Sequence[PromotedEntry] | None, *, as_json: bool) -> None:
    """Show the outcome, also of an incomplete promotion."""
    entries = entries or []
    show(entries, _lines(entries), as_json=as_json)


def _lines(entries: Sequence[PromotedEntry]) -> Iterator[Shown]:
    epochs = {entry.topic: entry.epoch for entry in entries}
    if not epochs:
        yield "no topic was followed"
    for topic, epoch in epochs.items():
        yield f"{topic} is led here" + (f", from epoch {epoch} on" if epoch >= 0 else "")
    rows = [entry for entry in entries if entry.group is not None or entry.text]
    if rows:
        columns = ("now", "clamped"), ("note", "text")
        yield Table(rows, "topic", "group", "partition", "committed", *columns)
