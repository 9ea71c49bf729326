"""The types of the official clients, taken strictly: no missing field, no other type, no unknown word."""

import functools

import pydantic


@functools.cache
def adapter(kind):
    return pydantic.TypeAdapter(kind)


def check(kind, value):
    """Fails if a value is not of a type."""
    try:
        adapter(kind).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        raise AssertionError(f"{nearest(error)} in {str(value)[:2000]}") from None


def nearest(error):
    """The errors that matter: of a union, those of the members whose `type` is right."""
    errors = error.errors(include_url=False, include_input=False)
    others = {entry["loc"][:-1] for entry in errors if entry["loc"][-1:] == ("type",)}
    kept = [entry for entry in errors if not any(entry["loc"][: len(other)] == other for other in others if other)]
    return [(".".join(map(str, entry["loc"])), entry["msg"]) for entry in (kept or errors)[:8]]
