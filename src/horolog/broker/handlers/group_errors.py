"""The error codes of failed operations on consumer groups."""

from horolog.errors import ErrorCode, HorologError, StorageFailed, code_for


def group_error_code(error: HorologError) -> ErrorCode:
    """The code of a failure, as Apache Kafka's coordinator translates it.

    A disk that refuses is NOT_COORDINATOR: clients look for the coordinator and retry. Of
    KAFKA_STORAGE_ERROR they give up.
    """
    if isinstance(error, StorageFailed):
        return ErrorCode.not_coordinator
    return code_for(error)
