"""A model that says what the conversation wants: `<<say:TEXT>>` in it makes the model say the text."""

import json


def say(text):
    assert ">>" not in text
    return f"<<say:{text}>>"


def call(name, **arguments):
    """A call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def schema(*names):
    """An object with these texts, all required."""
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names), "additionalProperties": False}


READ = {"name": "read", "description": "Reads a file.", "schema": schema("path")}
LIST = {"name": "list", "description": "Lists files.", "schema": schema()}


def tools(api, *which, strict=False):
    """Tools in the form of an API, all strict or none."""
    shown = []
    for tool in which or (READ, LIST):
        function = {"name": tool["name"], "description": tool["description"], "strict": strict}
        if api == "messages":
            shown.append({**function, "input_schema": tool["schema"]})
        else:
            function["parameters"] = tool["schema"]
            shown.append({"type": "function", **(function if api == "responses" else {"function": function})})
    return shown
