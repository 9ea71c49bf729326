"""Server-sent events, taken apart strictly."""

import json


def events(raw, named):
    """The name (None where there is none) and the data of each event; comments are left out.

    An event is one line of data, after one with its name if events are to have names.
    """
    text = raw.decode("utf-8")
    assert text.endswith("\n\n") and "\r" not in text, "a stream ends with the end of an event"
    found = []
    for block in text[:-2].split("\n\n"):
        lines = block.split("\n")
        if all(line.startswith(":") for line in lines):
            continue
        name = lines.pop(0).removeprefix("event: ") if named else None
        assert len(lines) == 1 and lines[0].startswith("data: "), f"not an event: {block!r}"
        found.append((name, lines[0].removeprefix("data: ")))
    return found


def named_events(raw):
    """The data of events that have names, which their data says again."""
    found = []
    for name, data in events(raw, named=True):
        data = json.loads(data)
        assert data["type"] == name
        found.append(data)
    return found


def is_text(value):
    """Whether this is text that was not cut inside a character."""
    if not isinstance(value, str):
        return False
    value.encode("utf-8")
    return True


def is_json_object(text):
    """Whether this is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
