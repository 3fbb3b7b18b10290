"""`horolog follow`: have a broker follow another cluster, and show how far it is."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from horolog.cli.connecting import HorologBrokers
from horolog.cli.options import with_options
from horolog.clock import format_duration
from horolog.errors import Misconfigured
from horolog.results import Answer, Column, Table
from horolog.wire.questions import FOLLOWING, FollowedEntry, Following

app = typer.Typer(no_args_is_help=True)


@app.callback(invoke_without_command=True, no_args_is_help=True)
@with_options
def follow(
    context: typer.Context,
    brokers: HorologBrokers,
    demote: Annotated[
        bool,
        typer.Option("--demote", help="Have the broker follow --source, also where it leads."),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...]", help="The cluster to follow, as the broker reaches it."
        ),
    ] = None,
    topics_pattern: Annotated[
        str,
        typer.Option(
            metavar="RE",
            help="Only topics whose whole name matches a regular expression, in RE2's syntax; "
            "default all.",
        ),
    ] = ".*",
) -> Answer | None:
    """Have a broker follow another cluster in the place of leading, or see how far it has.

    With --demote the broker takes records from the source, and no longer from producers. Records
    that the source never had are cut off, and set aside in files that end in .cut. Topics must have
    the same ids on both sides, as after `horolog promote`. The broker follows only the servers of
    its setting horolog.demote.servers. Settings for TLS or SASL of the source come from the file of
    its horolog.follow.config. docs/following.md has the whole way there and back.
    """
    if context.invoked_subcommand is not None:
        if demote or source is not None:
            raise Misconfigured(f"--demote and --source are not for {context.invoked_subcommand}")
        return None
    if not demote or source is None:
        raise Misconfigured("Give --demote and --source HOST:PORT, or the command status")
    with brokers.connect() as client:
        client.demote(source, topics_pattern)
        following = client.ask.needed(FOLLOWING)
    return Answer(_plain(following), _title(following))


@app.command()
@with_options
def status(brokers: HorologBrokers) -> Answer:
    """Show which cluster a broker follows, and how far: exit code 0 also if it is behind.

    The lag of a partition is the time since all records of the source were here. Also listed are
    settings of the source that this broker refuses, offsets that were deleted before they arrived,
    and topics that cannot be followed.
    """
    with brokers.connect() as client:
        following = client.ask.needed(FOLLOWING)
    table = [Table(following.entries, *_COLUMNS)] if following.entries else []
    return Answer(_plain(following), [*_title(following), *table])


def _title(following: Following) -> list[str]:
    if following.cluster_id is None:
        return ["this broker follows no cluster"]
    named = f"{following.servers} (cluster {following.cluster_id or 'not reached yet'})"
    if following.is_ended:
        return [f"{named} is not followed any more: all topics were promoted"]
    of_topics = "" if following.topics == ".*" else f", topics that match {following.topics}"
    if not following.topics:
        of_topics = ", but no topics: their pattern was dropped, as the log says"
    title = [f"following {named}{of_topics}"]
    if following.error is not None:
        title.append(f"It cannot be followed now: {following.error}")
    return [*title, *(f"Not copied: {note}" for note in following.notes)]


def _note(entry: FollowedEntry) -> str:
    notes = [entry.text] if entry.text else []
    return "; ".join([*notes, *(f"without {name}: {why}" for name, why in entry.settings.items())])


_COLUMNS: Final[Sequence[Column]] = (
    *("topic", "partition"),
    ("state", lambda entry: entry.state.value),
    *("offsets behind", "records behind"),
    ("lag", lambda entry: None if entry.lag_ms is None else format_duration(entry.lag_ms)),
    ("end", "end_offset"),
    ("note", _note),
)


def _plain(following: Following) -> dict[str, object]:
    """Return the answer for JSON, without the member that leads to the next page."""
    return {name: value for name, value in following._asdict().items() if name != "next"}
