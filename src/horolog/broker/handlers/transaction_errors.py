"""Error codes of transactions as a version of a request has them."""

from horolog.errors import ErrorCode, HorologError, code_for


def transaction_code(error: HorologError, *, knows_fenced: bool) -> ErrorCode:
    """The code of an error; to older clients a fenced producer has an invalid epoch (KIP-588)."""
    code = code_for(error)
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return code
