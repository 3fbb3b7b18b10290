"""The error codes of failed operations on consumer groups."""

from horolog.errors import ErrorCode, HorologError, StorageFailed, code_for

_SAYS_NOT_FOUND = 9  # the first version of OffsetCommit that says that a group is not there


def group_error_code(error: HorologError) -> ErrorCode:
    """The code of a failure, as Apache Kafka's coordinator translates it.

    A disk that refuses is NOT_COORDINATOR: clients look for the coordinator and retry. Of
    KAFKA_STORAGE_ERROR they give up.
    """
    if isinstance(error, StorageFailed):
        return ErrorCode.not_coordinator
    return code_for(error)


def commit_error_code(error: HorologError, version: int) -> ErrorCode:
    """As `group_error_code`, for this version of OffsetCommit."""
    error_code = group_error_code(error)
    if error_code is ErrorCode.group_id_not_found and version < _SAYS_NOT_FOUND:
        return ErrorCode.illegal_generation
    return error_code
