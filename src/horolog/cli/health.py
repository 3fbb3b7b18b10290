"""`horolog health`: what is wrong with a broker, for people and scripts."""

import socket
from dataclasses import replace
from typing import Annotated, Final

import typer

from horolog.cli.connecting import HorologBrokers
from horolog.cli.options import with_options
from horolog.client.brokers import Brokers
from horolog.client.config import Address, parse_bootstrap_servers
from horolog.client.connection import NoAnswer
from horolog.client.deadline import Deadline
from horolog.client.security import AuthenticationFailed
from horolog.errors import ErrorCode, RequestRefused
from horolog.results import Answer, Shown, Table
from horolog.wire.questions import HEALTH

app = typer.Typer()

ALIVE_WITHIN_MS: Final = 2_000


@app.command()
@with_options
def health(
    brokers: HorologBrokers,
    is_alive: Annotated[
        bool,
        typer.Option(
            "--alive",
            help="Only ask whether the port answers, within two seconds and without a login: for "
            "supervisors, which restart what does not.",
        ),
    ] = False,
) -> Answer:
    """Say what is wrong with a horolog broker: exit code 0 if nothing is, else 1.

    Checks for lost metadata, partitions that are offline or refuse appends, hanging transactions,
    append times ahead of the clock, files that recovery has set aside, a nearly full disk, and a
    missing log directory. Of a broker that follows another cluster it lists the missing data. The
    exit code is also 1 if no broker answers. One line says what the broker lacks without numba.
    """
    return _alive(brokers) if is_alive else _findings(brokers)


def _alive(brokers: HorologBrokers) -> Answer:
    """Ask the broker for its versions, which it answers before authentication (KIP-35)."""
    config = brokers.config()
    connections = Brokers(replace(config, security=config.security.without_login))
    try:
        connections.any(Deadline.after_ms(ALIVE_WITHIN_MS))
    except (AuthenticationFailed, NoAnswer):
        # A listener with TLS, of which the settings say nothing, or that asks for a certificate.
        if not any(map(_shows_certificate, parse_bootstrap_servers(config.bootstrap_servers))):
            raise
    finally:
        connections.close()
    return Answer({"alive": True}, [f"{brokers.bootstrap} answers"])


def _shows_certificate(address: Address) -> bool:
    """Return True if a broker answers a TLS handshake; whose certificate it shows is not asked."""
    import ssl  # noqa: PLC0415 - nearly never

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, ALIVE_WITHIN_MS / 1000) as sock,
            context.wrap_socket(sock) as secured,
        ):
            return secured.getpeercert(binary_form=True) is not None
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # after its certificate it wants the client's
    except OSError:
        return False


def _findings(brokers: HorologBrokers) -> Answer:
    with brokers.connect() as client:
        health_by_broker = client.ask.each_broker(HEALTH)
    unknown = [node for node, answer in health_by_broker.items() if answer is None]
    if unknown and len(unknown) == len(health_by_broker):
        raise RequestRefused(
            ErrorCode.unsupported_version,
            f"broker {unknown[0]} at {brokers.bootstrap} does not say how it is, as only horolog "
            "does",
        )
    answers = {node: answer for node, answer in health_by_broker.items() if answer is not None}
    wrong = [
        {"broker": node, **w._asdict()} for node, health in answers.items() for w in health.wrong
    ]
    result = {
        "ready": True,
        "healthy": not wrong,
        "brokers": [
            {
                "broker": node,
                "partitions": answer.served,
                "wrong": answer.wrong,
                "without_numba": answer.without_numba,
            }
            for node, answer in answers.items()
        ],
    }
    if unknown:
        result["not_asked"] = unknown
    lines: list[Shown] = [
        f"broker {node} is ready: {answer.served} partitions, nothing is wrong"
        for node, answer in answers.items()
    ]
    if wrong:
        columns = ("what", "kind"), ("of", "subject"), ("details", "text")
        lines = [Table(wrong, "broker", *columns)]
    lines += [f"broker {node} is not asked: it is one of Apache Kafka" for node in unknown]
    lines += [
        f"broker {node}: {answer.without_numba}"
        for node, answer in answers.items()
        if answer.without_numba is not None
    ]
    return Answer(result, lines, not wrong)
