"""What AlterConfigs, IncrementalAlterConfigs and DescribeConfigs are about: topics and brokers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from horolog.broker.broker import Broker
from horolog.broker.dispatch import Request
from horolog.errors import ErrorCode, HorologError, RequestRefused, code_for
from horolog.wire.config_resources import ResourceType

if TYPE_CHECKING:
    from horolog.wire.responses import AlterConfigsResourceResponse


class Resource(Protocol):
    """What a request names: a topic, or this broker."""

    @property
    def resource_type(self) -> int:
        """A `ResourceType`, or a number that is none."""
        ...

    @property
    def resource_name(self) -> str:
        """Of a topic; of a broker its node id, or empty for all brokers."""
        ...


ResourceT = TypeVar("ResourceT", bound=Resource)


async def alter_each(
    request: Request[Any],
    resources: Iterable[ResourceT],
    alter: Callable[[ResourceT], Awaitable[None]],
) -> "list[AlterConfigsResourceResponse]":
    """Alter one resource after the other; the response to each, whatever the others get."""
    responses: list[AlterConfigsResourceResponse] = []
    for resource in resources:
        await request.checkpoint()
        error_code, message = ErrorCode.none, None
        try:
            await alter(resource)
        except HorologError as error:
            error_code, message = code_for(error), str(error)
        responses.append(
            {
                "error_code": error_code,
                "error_message": message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
        )
    return responses


def check_broker(broker: Broker, name: str) -> bool:
    """Refuse a broker that is not this one; whether all brokers are meant (the name is empty)."""
    if name and name != str(broker.config.node_id):
        raise RequestRefused(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.config.node_id} or empty string, "
            f"but received {name}",
        )
    return not name


def check_logger_broker(broker: Broker, name: str) -> None:
    """Refuse the loggers of any broker but this one."""
    if check_broker(broker, name):
        raise RequestRefused(ErrorCode.invalid_request, "Broker id must not be empty")


_WITHOUT_SETTINGS: Final[Mapping[int, str]] = {
    ResourceType.CLIENT_METRICS: "client metrics",
    ResourceType.GROUP: "groups",
}


def check_without_settings(number: int, name: str) -> None:
    """Return for a resource of a kind that has no settings here: it is described without any.

    Raises:
        RequestRefused: there is no such kind, or the resource has no name.
    """
    if number not in _WITHOUT_SETTINGS:
        raise unknown_type(number)
    if not name:
        raise RequestRefused(
            ErrorCode.invalid_request, f"a resource of {_WITHOUT_SETTINGS[number]} has a name"
        )


def unknown_type(number: int) -> RequestRefused:
    """The refusal of a change of a resource that has no settings here."""
    return RequestRefused(
        ErrorCode.invalid_request,
        f"settings of {_WITHOUT_SETTINGS.get(number, 'an unknown kind')} (resource type {number}) "
        "cannot be changed: those of topics (2) and brokers (4) can, and levels of loggers (8) "
        "incrementally",
    )
