"""Set faults by an action of the broker, for tests in any language (docs/testing.md).

`horolog.fault` is a JSON object. One member says what to do, others narrow it down:

    {"fail": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2, "topic": "clicks"}
    {"delay": "Fetch", "by": "2s"}
    {"disconnect": "Fetch", "after_bytes": 100}
    {"lose_answer": "Produce", "topic": "clicks", "partition": 0}
    {"not_leader": "clicks"}
    {"pause": "5s"}    {"resume": true}    {"clear": true}
"""

from collections.abc import Mapping
from typing import Any, Final

from horolog.broker.broker import BrokerParts
from horolog.broker.control.rows import Perform, performs
from horolog.broker.faults import Faults
from horolog.clock import duration_ms
from horolog.errors import ErrorCode, RequestRefused
from horolog.json_text import from_json
from horolog.wire.questions import FAULT

PAUSE_MS: Final = 60_000
"""The length of a pause for which a client gives none."""
MOST_PAUSE_MS: Final = 3_600_000

_NARROWED: Final = ("times", "topic", "partition")
_FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "fail": ("error", *_NARROWED),
    "delay": ("by", *_NARROWED),
    "disconnect": ("after_bytes", *_NARROWED),
    "lose_answer": _NARROWED,
    "not_leader": (),
    "pause": (),
    "resume": (),
    "clear": (),
}
_NEEDED: Final = ("error", "by")


@performs(FAULT)
def prepare_fault(broker: BrokerParts, name: str, values: Mapping[str, str]) -> Perform:
    """Set or clear faults.

    Raises:
        RequestRefused: the broker was started without faults, or the value is not of the form.
    """
    if broker.faults is None:
        raise _refusal(
            f"{FAULT.name}: this broker has no faults; start one with "
            "`horolog serve --clock manual --faults`"
        )
    faults, text = broker.faults, values[FAULT.name]

    async def perform() -> None:
        try:
            _set(faults, from_json(text))
        except (ValueError, TypeError) as error:
            raise _refusal(f"{FAULT.name}: {error}") from None

    return perform


def _set(faults: Faults, said: Any) -> None:
    forms = [form for form in _FORMS if isinstance(said, dict) and form in said]
    if len(forms) != 1:
        raise ValueError(f"write a JSON object with one of {', '.join(_FORMS)}")
    form = forms[0]
    about = said.pop(form)
    unknown = said.keys() - set(_FORMS[form])
    if unknown:
        raise ValueError(f"{min(unknown):.100} does not go with {form}")
    for member in _NEEDED:
        if member in _FORMS[form] and member not in said:
            raise ValueError(f"{form} needs {member}")
    match form:
        case "pause":
            pause_ms = PAUSE_MS if about is True else duration_ms(about)
            if not 0 < pause_ms <= MOST_PAUSE_MS:
                raise ValueError(f"a pause of {about}: allowed are 1 to {MOST_PAUSE_MS} ms")
            faults.pause(pause_ms / 1000)
        case "resume" | "clear":
            if about is not True:
                raise ValueError(f"{form}: allowed is true")
            faults.resume() if form == "resume" else faults.clear()
        case "not_leader":
            faults.not_leader(about)
        case _:
            getattr(faults, form)(about, **said)


def _refusal(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.invalid_config, message)
