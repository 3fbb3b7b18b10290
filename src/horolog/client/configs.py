"""DescribeConfigs and AlterConfigs requests to one broker."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from horolog.client.deadline import Deadline
from horolog.client.link import Link
from horolog.client.metadata import refuse
from horolog.errors import RequestRefused
from horolog.wire.api import ApiKey
from horolog.wire.config_resources import ResourceType

ConfigResource: TypeAlias = tuple[ResourceType, str]

_SET: Final = 0
_DELETE: Final = 1


def describe_request(
    keys: Mapping[ConfigResource, Sequence[str] | None], *, with_documentation: bool = False
) -> dict[str, Any]:
    """Return the request for these names of each resource; None stands for all names."""
    return {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": names}
            for (kind, name), names in keys.items()
        ],
        "include_synonyms": False,
        "include_documentation": with_documentation,
    }


def alter(
    link: Link,
    resource: ConfigResource,
    values: Mapping[str, str | None],
    deadline: Deadline,
    *,
    validate_only: bool = False,
) -> None:
    """Set names of a resource to values; None restores the default.

    Raises:
        RequestRefused: a name or value that the broker does not take, with its reason.
        NoAnswer: the broker does not answer.
    """
    configs = [
        {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
        for name, value in values.items()
    ]
    altered = {"resource_type": resource[0], "resource_name": resource[1], "configs": configs}
    request = {"resources": [altered], "validate_only": validate_only}
    body = link.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, deadline)
    refuse_any((title_of(resource), response) for response in body.responses)


def refuse_any(results: Iterable[tuple[str, Any]]) -> None:
    """Raise one error for all results that are errors.

    Raises:
        RequestRefused: with the code of the first.
    """
    failures = []
    for what, result in results:
        try:
            refuse(result.error_code, what, getattr(result, "error_message", None))
        except RequestRefused as error:
            failures.append(error)
    if failures:
        raise RequestRefused(failures[0].code, "; ".join(map(str, failures)))


def title_of(resource: ConfigResource) -> str:
    """Return the name of a resource in errors."""
    return f"{resource[0].name.lower()} {resource[1]}".strip()
