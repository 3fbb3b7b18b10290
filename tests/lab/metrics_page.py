"""What a broker's metrics say, read strictly as Prometheus' text format 0.0.4."""

from __future__ import annotations

import re
import ssl
import urllib.request
from typing import NamedTuple

from patience import PATIENCE_S
from running_broker import RunningBroker
from secrets_kept import note

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?[0-9.e+-]+|\+Inf|NaN)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("", "_count", "_sum")}


class Metrics(NamedTuple):
    """All samples, by name and labels, and the families that they are of."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    kinds: dict[str, str]
    helps: dict[str, str]

    def value(self, name: str, **labels: object) -> float:
        """One sample."""
        return self.samples[name, frozenset((key, str(value)) for key, value in labels.items())]

    def of(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """All samples of a name, by their labels in order."""
        return {
            tuple(sorted(labels)): v for (each, labels), v in self.samples.items() if each == name
        }


def scrape(broker: RunningBroker, query: str = "", tls: ssl.SSLContext | None = None) -> Metrics:
    """Ask a broker that serves metrics."""
    assert broker.service.metrics is not None
    url = f"{broker.service.metrics.url}{query}"
    with urllib.request.urlopen(url, timeout=PATIENCE_S, context=tls) as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = response.read().decode()
    note(text, "the page of metrics")
    return parse(text)


def records_converted(broker: RunningBroker, way: str) -> float:
    """How many records of topic `t` were converted for requests of one API: produce or fetch."""
    name = f"kafka_server_brokertopicmetrics_{way}messageconversions_total"
    found = scrape(broker)
    assert found.value(name) == found.of(name).get((("topic", "t"),), 0)
    return found.value(name)


def parse(text: str) -> Metrics:
    """Read a page; asserts that it keeps to the format."""
    assert text.endswith("\n")
    found, family = Metrics({}, {}, {}), ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            family, _, said = line[7:].partition(" ")
            assert family not in found.helps, f"{family} twice"
            found.helps[family] = said
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == family
            found.kinds[name] = kind
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            suffixes = _SUFFIXES.get(found.kinds[family], ("",))
            assert sample[1] in [family + suffix for suffix in suffixes], line
            labels = _LABEL.findall(sample[2] or "")
            assert "".join(f'{name}="{value}",' for name, value in labels)[:-1] == (sample[2] or "")
            key = (
                sample[1],
                frozenset(
                    (name, re.sub(r"\\.", lambda each: _UNESCAPED[each[0]], value))
                    for name, value in labels
                ),
            )
            assert key not in found.samples, line
            found.samples[key] = float(sample[3])
    return found
