"""`horolog health`: what is wrong with a broker, for people and scripts."""

import typer

from horolog.cli.connecting import HorologBrokers, with_brokers
from horolog.cli.options import Json
from horolog.cli.screen import show_json, show_table
from horolog.cli.terminal import echo
from horolog.errors import ErrorCode, RequestRefused
from horolog.wire.questions import HEALTH

app = typer.Typer()


@app.command()
@with_brokers
def health(brokers: HorologBrokers, is_json: Json = False) -> None:
    """Say what is wrong with a horolog broker: exit code 0 if nothing is, else 1.

    Metadata that was lost, partitions that are offline or refuse appends, transactions that hang,
    append times ahead of the clock, what recovery has set aside, a disk that is nearly full, a log
    directory that is gone; what a broker that follows another cluster does not have of it. Also 1
    if no broker answers. A line says what it costs where numba is not installed.
    """
    with brokers.connect() as client:
        found = client.ask.each_broker(HEALTH)
    unknown = [node for node, answer in found.items() if answer is None]
    if unknown:
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"broker {unknown[0]} at {brokers.bootstrap} does not say how it is, as only horolog "
            "does",
        )
    answers = {node: answer for node, answer in found.items() if answer is not None}
    wrong = [(node, each) for node, answer in answers.items() for each in answer.wrong]
    if is_json:
        shown = [
            {
                "broker": node,
                "partitions": answer.served,
                "wrong": [w._asdict() for w in answer.wrong],
                "without_numba": answer.without_numba,
            }
            for node, answer in answers.items()
        ]
        show_json({"ready": True, "healthy": not wrong, "brokers": shown})
    elif wrong:
        rows = [(node, each.kind, each.subject, each.text) for node, each in wrong]
        show_table(("broker", "what", "of", "details"), rows)
    else:
        for node, answer in answers.items():
            echo(f"broker {node} is ready: {answer.served} partitions, nothing is wrong")
    if not is_json:
        for node, answer in answers.items():
            if answer.without_numba is not None:
                echo(f"broker {node}: {answer.without_numba}")
    if wrong:
        raise typer.Exit(1)
