"""Any valid message of any version, as the dictionary that the codec writes."""

from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from horolog.wire import Field, Shape

BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def messages(shape: Shape) -> st.SearchStrategy[dict[str, Any]]:
    """Every field given, arrays as tuples, nulls where they are allowed.

    Kept to what kio's own classes can hold: error codes that it knows, and moments and spans
    that fit a datetime.
    """
    return st.fixed_dictionaries({each.name: _field(each) for each in shape.fields})


def _field(each: Field) -> st.SearchStrategy[Any]:
    value = messages(each.shape) if each.shape is not None else _primitive(each)
    if each.is_array:
        value = st.lists(value, max_size=2).map(tuple)
    return st.none() | value if each.is_nullable else value


def _primitive(each: Field) -> st.SearchStrategy[Any]:
    match each.type:
        case "bool":
            return st.booleans()
        case "string":
            return st.text(max_size=6)
        case "bytes" | "records":
            return st.binary(max_size=12)
        case "uuid":
            return st.uuids()
        case "float64":
            return st.floats(allow_nan=False)  # which equals nothing
        case "uint16":
            return st.integers(0, 2**16 - 1)
        case "int16" if each.name.endswith("error_code"):
            return st.sampled_from(ErrorCode).map(int)
        case "int64" if each.name.endswith("_ms"):
            return st.integers(0, 2**41)
        case kafka_type:
            return st.integers(-(2 ** BITS[kafka_type]), 2 ** BITS[kafka_type] - 1)
