"""`horolog serve`: a broker in the foreground, until SIGTERM or Ctrl-C."""

import logging
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from horolog.broker import service
from horolog.broker.faults import Faults
from horolog.cli.log_lines import JsonLines, LogLines
from horolog.cli.options import pairs, with_options
from horolog.cli.properties_files import read_properties
from horolog.cli.terminal import echo
from horolog.clock import ManualClock, SystemClock
from horolog.config import (
    Endpoint,
    Settings,
    files_of_secrets,
    host_port,
    secrets_among,
    with_provided,
)
from horolog.config.listeners import INTER_BROKER, INTER_PROTOCOL
from horolog.errors import Misconfigured
from horolog.record.kernels.loading import WITHOUT_NUMBA, is_numba_installed
from horolog.security.files import is_readable_by_others
from horolog.testing.settings import for_tests
from horolog.times import parse_time

app = typer.Typer()

_LOG = logging.getLogger(__name__)
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_SETTINGS: Final = {
    "log_dir": "log.dirs",
    "adopt_defaults": "horolog.adopt.defaults",
    "take_over": "horolog.take.over",
    "cluster_id": "horolog.cluster.id",
    "metrics_port": "horolog.metrics.port",
}
"""Broker settings by the options that set them."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of a broker."""

    host: Annotated[
        str | None,
        typer.Option("--host", help="The address to listen on; default 127.0.0.1."),
    ] = None
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="The port; default 9092, 0 for a free one."),
    ] = None
    listen: Annotated[
        list[str] | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Instead of both; repeatable."),
    ] = None
    advertise: Annotated[
        list[str] | None,
        typer.Option("--advertise", metavar="HOST:PORT", help="For clients; repeatable."),
    ] = None
    log_dir: Annotated[
        Path | None,
        typer.Option("--log-dir", help="The log directory; default ./horolog-data."),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", exists=True, dir_okay=False, help="A server.properties file."),
    ] = None
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting that overrides the file; repeatable."
        ),
    ] = None
    adopt_defaults: Annotated[
        bool,
        typer.Option(
            "--adopt-defaults",
            help="Retention and rolling also for partitions found on disk, which are kept as they "
            "are otherwise.",
        ),
    ] = False
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Go on as the single Apache Kafka node that wrote the log directory, with its "
            "topics and settings (docs/moving-in-and-out.md). Later starts do not need it.",
        ),
    ] = False
    is_open: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Let everyone who reaches the broker do everything, from other machines, too, and "
            "in the log directory of a Kafka that was secured (docs/security.md). Later starts "
            "need it, too.",
        ),
    ] = False
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id",
            metavar="ID",
            help="The id of the cluster, for a new log directory or one whose meta.properties is "
            "lost (docs/moving-in-and-out.md). Later starts do not need it.",
        ),
    ] = None
    follow: Annotated[
        str | None,
        typer.Option(
            "--follow",
            metavar="HOST:PORT[,...]",
            help="Follow a cluster: same topics, offsets and bytes (docs/following.md). A broker "
            "that has begun to continues without this option, until it is promoted.",
        ),
    ] = None
    topics_pattern: Annotated[
        str | None,
        typer.Option(
            "--topics-pattern",
            metavar="RE",
            help="With --follow, only topics whose whole name matches a regular expression, in "
            "RE2's syntax.",
        ),
    ] = None
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="With --follow, client properties: security.protocol, ssl.*, sasl.* and others.",
        ),
    ] = None
    clock: Annotated[
        str,
        typer.Option(
            "--clock",
            metavar="system|manual[:START]",
            help="For tests: a clock that clients can turn, see docs/testing.md. It follows the "
            "machine's, or stops at START, a time or as far from now as -8d.",
        ),
    ] = "system"
    has_faults: Annotated[
        bool,
        typer.Option(
            "--faults",
            help="For tests, with a manual clock: clients may make requests fail on purpose, see "
            "docs/testing.md.",
        ),
    ] = False
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65535,
            help="Serve metrics for Prometheus on this port, 0 for a free one; on 127.0.0.1 unless "
            "horolog.metrics.host is set.",
        ),
    ] = None
    json_log: Annotated[
        bool, typer.Option("--json-log", help="Log JSON lines: time, level, logger, message.")
    ] = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")] = False


def _read_config(path: Path) -> dict[str, str]:
    """Read the file of settings; warn if others can read passwords in it."""
    given = read_properties(path)
    open_files = [file for file in files_of_secrets(given) if is_readable_by_others(file)]
    has_secrets = any("${" not in given[name] for name in secrets_among(given))
    if has_secrets and is_readable_by_others(path):
        open_files.append(path)
    for file in dict.fromkeys(open_files):
        from horolog.cli.screen import say  # noqa: PLC0415 - 30 ms for this alone

        say(f"{file} has passwords that other users of this machine can read: chmod 600 {file}")
    return given


@app.command()
@with_options
def serve(
    options: ServeOptions,
) -> None:
    """Run a broker in the foreground.

    Once it accepts connections it prints a line that starts with "ready" and has host:port.
    SIGTERM and Ctrl-C stop it cleanly, SIGHUP is ignored, and SIGQUIT prints the stacks of all
    threads. docs/settings.md has all settings.
    """
    assigned = pairs(options.assignments, "--set")
    if secrets := secrets_among(assigned):
        raise Misconfigured(
            f"--set {secrets[0]}: other users of this machine can see it; write it into the file "
            "of --config"
        )
    given = {} if options.config is None else _read_config(options.config)
    given = with_provided(given | assigned)
    listening = listener_settings(
        options.host, options.port, options.listen or (), options.advertise or (), given
    )
    if "listeners" in listening:  # others than those of the file, which these may name
        for name in (INTER_BROKER, INTER_PROTOCOL, "early.start.listeners"):
            given.pop(name, None)
    given |= listening
    if options.is_open:
        given["horolog.open.listeners"] = "*"
    for option, setting in _SETTINGS.items():
        value = getattr(options, option)
        if value is not None and value is not False:
            given[setting] = "true" if value is True else str(value)
    given |= follow_settings(options.follow, options.topics_pattern, options.command_config)
    write_log_to_stderr(verbose=options.verbose, as_json=options.json_log)
    turnable = manual_clock(options.clock)
    if options.has_faults and turnable is None:
        raise Misconfigured("--faults: only for tests, so add --clock manual")
    if turnable is not None:
        _LOG.warning("any client can set the clock of this broker and make its records expire")
    settings = Settings(static=given if turnable is None else for_tests(given))
    resolved = settings.broker_config()
    if not is_numba_installed():
        _LOG.warning("%s", WITHOUT_NUMBA)
    for sentence in settings.deprecated():
        _LOG.warning("%s", sentence)
    if resolved.horolog_ignore_unknown_settings:
        for complaint in settings.unknown():
            _LOG.warning("ignored: %s", complaint)

    def on_ready(running: service.Service) -> None:
        if running.metrics is not None:
            _LOG.info("metrics are served at %s", running.metrics.url)
        echo(ready_line(running.bound, resolved.advertised_listeners, resolved.log_dir))

    faults = Faults() if options.has_faults else None
    service.serve(settings, clock=turnable, faults=faults, on_ready=on_ready)
    if any(thread.daemon for thread in threading.enumerate()):
        _leave()


def _leave() -> None:
    """End the process at once after a clean stop, without waiting for daemon threads.

    At exit the interpreter stops daemon threads. That crashes where one is in native code (LLVM,
    RE2), or waits for the kernels that are being compiled.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or the disk is full
            stream.flush()
    os._exit(0)


def write_log_to_stderr(*, verbose: bool, as_json: bool = False) -> None:
    """Log to stderr; `verbose` includes events of each connection."""
    lines = logging.StreamHandler()
    lines.setFormatter(JsonLines() if as_json else LogLines(_LOG_FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[lines])
    for library in ("asyncio", "numba"):  # their debug messages describe internals
        logging.getLogger(library).setLevel(logging.WARNING)


def manual_clock(text: str) -> ManualClock | None:
    """Return the clock of the option `--clock`; None for the system's clock.

    Raises:
        Misconfigured: the clock is unknown, or START is not a time.
    """
    kind, _, start = text.partition(":")
    if text == "system":
        return None
    if kind != "manual":
        raise Misconfigured(f"--clock {text}: write system, manual or manual:2020-01-01T00:00Z")
    if not start:
        return ManualClock.following()
    return ManualClock(parse_time(start, now_ms=SystemClock().now_ms()))


def ready_line(bound: Sequence[Endpoint], advertised: Sequence[Endpoint], log_dir: str) -> str:
    """Return the line that announces the broker's addresses."""
    ports = {endpoint.name: endpoint.port for endpoint in bound}
    addresses = [
        host_port(endpoint.host, endpoint.port or ports[endpoint.name]) for endpoint in advertised
    ]
    return f"ready {', '.join(addresses)} (log directory {Path(log_dir).absolute()})"


def follow_settings(
    follow: str | None, topics_pattern: str | None, command_config: Path | None
) -> dict[str, str]:
    """Return the broker settings of the options about a followed cluster.

    Raises:
        Misconfigured: options for `--follow` are given without it.
    """
    if follow is None:
        if topics_pattern is not None or command_config is not None:
            raise Misconfigured("--topics-pattern and --command-config are for --follow HOST:PORT")
        return {}
    given = {"horolog.follow": follow}
    if topics_pattern is not None:
        given["horolog.follow.topics"] = topics_pattern
    if command_config is not None:
        # A restart without the option may be in another directory.
        given["horolog.follow.config"] = str(command_config.absolute())
    return given


def listener_settings(
    host: str | None,
    port: int | None,
    listen: Sequence[str],
    advertise: Sequence[str],
    given: dict[str, str],
) -> dict[str, str]:
    """Return Kafka's listener settings of the options about addresses.

    Raises:
        Misconfigured: the options contradict each other, or are no addresses.
    """
    if listen and (host is not None or port is not None):
        raise Misconfigured("give --listen HOST:PORT, or --host and --port")
    if host is not None or port is not None:
        listen = [host_port((host or "127.0.0.1").strip("[]"), 9092 if port is None else port)]
    values = {}
    names = _names(len(listen)) or _names_of(given.get("listeners", "PLAINTEXT://"))
    if listen:
        values["listeners"] = _endpoints(names, listen, "--listen")
        values["listener.security.protocol.map"] = ",".join(f"{name}:PLAINTEXT" for name in names)
    if len(advertise) > len(names):
        raise Misconfigured(
            f"--advertise is given {len(advertise)} times for {len(names)} listeners"
        )
    if advertise:
        values["advertised.listeners"] = _endpoints(names, advertise, "--advertise")
    return values


def _names(count: int) -> list[str]:
    return ["PLAINTEXT", *(f"PLAINTEXT_{number}" for number in range(2, count + 1))][:count]


def _names_of(listeners: str) -> list[str]:
    return [text.strip().partition("://")[0] for text in listeners.split(",")]


def _endpoints(names: Sequence[str], addresses: Sequence[str], option: str) -> str:
    endpoints = []
    for name, address in zip(names, addresses, strict=False):
        host, _, port = address.rpartition(":")
        if not (port.isascii() and port.isdigit()) or (":" in host and host[0] != "["):
            raise Misconfigured(
                f"{option} {address}: write HOST:PORT, an IPv6 address in brackets as [::1]:9092"
            )
        endpoints.append(f"{name}://{address}")
    return ",".join(endpoints)
