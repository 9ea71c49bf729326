"""Responses."""

from openai.types.responses import Response, ResponseStreamEvent

from . import schema, sse

# For each type of item: what its id begins with, the field that is told piece by piece, the events that tell it.
KINDS = {
    "reasoning": ("rs_", "text", "response.reasoning_summary_text"),
    "message": ("msg_", "text", "response.output_text"),
    "function_call": ("fc_", "arguments", "response.function_call_arguments"),
    "custom_tool_call": ("ctc_", "input", "response.custom_tool_call_input"),
}
# For those with a part: the events of the part, what counts parts, and what is a part.
PARTS = {
    "reasoning": ("response.reasoning_summary_part", "summary_index", {"type": "summary_text", "text": ""}),
    "message": ("response.content_part", "content_index",
                {"type": "output_text", "text": "", "annotations": [], "logprobs": []}),
}


def check_whole(answer, request):
    schema.check(Response, {**answer, "tools": []})  # repeated as sent
    assert answer["id"].startswith("resp_") and answer["object"] == "response"
    assert {"created_at", "model", "output", "usage", "error", "incomplete_details"} <= set(answer)
    assert answer["error"] is None
    if answer["status"] == "incomplete":
        assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    else:
        assert answer["status"] == "completed" and answer["incomplete_details"] is None
    check_usage(answer["usage"])
    tools = dict(offered(request.get("tools") or []))
    for index, item in enumerate(answer["output"]):
        is_cut = answer["status"] == "incomplete" and index == len(answer["output"]) - 1
        check_item(item, is_cut, tools)
    ids = [item[field] for item in answer["output"] for field in ("id", "call_id") if field in item]
    assert len(set(ids)) == len(ids)
    if request.get("parallel_tool_calls") is False:
        assert sum("call_id" in item for item in answer["output"]) <= 1
    for field in ("tool_choice", "instructions", "previous_response_id", "prompt_cache_key", "metadata"):
        if request.get(field) is not None:
            assert answer[field] == request[field], f"{field} is repeated"


def offered(tools, namespace=None):
    """The tools that a model can be offered: name, then namespace and whether the input is text."""
    for tool in tools:
        if tool["type"] == "namespace":
            yield from offered(tool["tools"], tool["name"])
        elif tool["type"] in ("function", "custom"):
            yield tool["name"], (namespace, tool["type"] == "custom")


def check_item(item, is_cut, tools):
    kind = item["type"]
    assert item["id"].startswith(KINDS[kind][0])
    assert item["status"] == ("incomplete" if is_cut else "completed")
    if kind == "reasoning":
        assert [part["type"] for part in item["summary"]] == ["summary_text"]
        assert not item.get("content"), "raw reasoning is taken for the answer"
        assert isinstance(item["encrypted_content"], str)
    elif kind == "message":
        assert item["role"] == "assistant" and [part["type"] for part in item["content"]] == ["output_text"]
    else:
        assert item["call_id"].startswith("call_") and item["name"]
        if item["name"] in tools:
            namespace, takes_text = tools[item["name"]]
            assert item.get("namespace") == namespace and takes_text == (kind == "custom_tool_call")
        if kind == "function_call":
            assert is_cut or sse.is_json_object(item["arguments"]), item


def check_usage(usage):
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 <= usage["input_tokens_details"]["cached_tokens"] <= usage["input_tokens"]
    assert 0 <= usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]
    assert usage["input_tokens"] > 0


class Item:
    """The events of an item, in the order in which they must come."""

    def __init__(self, event, index):
        self.item = event["item"]
        self.index = index
        self.kind = self.item["type"]
        self.field, self.events = KINDS[self.kind][1:]
        self.part = PARTS.get(self.kind)
        self.text = ""
        self.logprobs = []
        self.expected = ["added"] if self.part else ["delta", "done"]
        assert event["output_index"] == index and self.item["status"] == "in_progress"
        empty = {"reasoning": ("summary", []), "message": ("content", [])}
        field, value = empty.get(self.kind, (self.field, ""))
        assert self.item[field] == value, "an item begins empty"

    def add(self, event):
        """Takes an event; true if it was the item's last."""
        name = event["type"]
        if name == "response.output_item.done":
            assert self.expected == ["end"], "an item ends too early"
            self.end(event)
            return True
        assert (event["item_id"], event["output_index"]) == (self.item["id"], self.index)
        if self.part:
            part, counter, empty = self.part
            assert event[counter] == 0
            if name == f"{part}.added":
                self.step("added", "delta", "done")
                assert event["part"] == empty
                return False
            if name == f"{part}.done":
                self.step("part", "end")
                assert event["part"] == self.whole_part()
                return False
        if name == f"{self.events}.delta":
            assert "delta" in self.expected and sse.is_text(event["delta"])
            self.text += event["delta"]
            self.logprobs += event.get("logprobs", [])
        else:
            assert name == f"{self.events}.done", f"{name} in a {self.kind}"
            self.step("done", "part" if self.part else "end")
            assert event[self.field] == self.text, "the whole is its pieces"
        return False

    def step(self, taken, *expected):
        assert taken in self.expected, f"{taken} where {self.expected} was expected"
        self.expected = list(expected)

    def whole_part(self):
        part = {**self.part[2], "text": self.text}
        return {**part, "logprobs": self.logprobs} if "logprobs" in part else part

    def end(self, event):
        assert event["output_index"] == self.index
        done = event["item"]
        if self.kind == "reasoning":
            fields = {"summary": [self.whole_part()], "encrypted_content": done["encrypted_content"]}
        else:
            fields = {"content": [self.whole_part()]} if self.part else {self.field: self.text}
        assert done == {**self.item, **fields, "status": done["status"]}
        self.item = done


def check_stream(raw, request):
    events = sse.named_events(raw)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        checked = {**event, "response": {**event["response"], "tools": []}} if "response" in event else event
        if event["type"] != "response.in_progress" or event["sequence_number"] == 1:
            schema.check(ResponseStreamEvent, checked)
    created, progress, *events, last = events
    assert (created["type"], progress["type"]) == ("response.created", "response.in_progress")
    assert created["response"] == progress["response"]
    begun = created["response"]
    assert (begun["status"], begun["output"], begun["usage"], begun["object"]) == ("in_progress", [], None, "response")
    items, is_open = [], False
    for event in events:
        if event["type"] == "response.in_progress":  # a sign of life
            assert event["response"]["id"] == begun["id"]
        elif event["type"] == "response.output_item.added":
            assert not is_open, "items come one after the other"
            items.append(Item(event, len(items)))
            is_open = True
        else:
            assert is_open, f"{event['type']} outside of an item"
            is_open = not items[-1].add(event)
    assert not is_open, "an item has no end"
    answer = last["response"]
    assert last["type"] == f"response.{answer['status']}"
    assert answer["output"] == [item.item for item in items]
    changed = {"status", "output", "usage", "incomplete_details"}
    assert set(answer) == set(begun) and all(answer[field] == begun[field] for field in set(begun) - changed)
    check_whole(answer, request)
    return answer
