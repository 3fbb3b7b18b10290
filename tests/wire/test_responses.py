"""Bodies of responses as the type checker sees them: made from the schemas."""

import contextlib
import io

import pytest
from tools import response_views
from tools.wire_views import views_of

from horolog.wire import REQUIRED, SUPPORTED, ApiKey, Unwritable, encode_response, load, responses


def test_the_views_are_those_of_the_schemas() -> None:
    made = io.StringIO()
    with contextlib.redirect_stdout(made):
        response_views.main()
    with open(responses.__file__) as file:
        assert file.read() == made.getvalue(), (
            "run: python -m tools.response_views > src/horolog/wire/responses.py"
        )


VALUES = {"bool": False, "string": "", "bytes": b"", "float64": 0.0, "uuid": None}


@pytest.mark.parametrize(
    "key",
    [key for key in SUPPORTED if key not in response_views.BUILT_APART],
    ids=lambda key: key.title,
)
def test_what_a_view_requires_cannot_be_left_out_of_any_version(key: ApiKey) -> None:
    view = getattr(responses, next(iter(views_of("response", key))))
    for version in range(key.versions.min, key.versions.max + 1):
        needed = {
            each.name: () if each.is_array else VALUES.get(each.type, 0)
            for each in load("response", key, version).fields
            if each.default is REQUIRED
        }
        encode_response(key, version, needed)
        assert view.__required_keys__ <= needed.keys() <= view.__annotations__.keys()
        for name in needed:
            with pytest.raises(Unwritable):
                encode_response(
                    key, version, {each: needed[each] for each in needed.keys() - {name}}
                )
