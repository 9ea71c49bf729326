"""Messages."""

import json

from anthropic.types import Message, RawMessageStreamEvent

from . import schema, sse

FIELDS = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
# What may grow in a block of each type.
DELTAS = {"text": {"text_delta": "text"}, "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
          "tool_use": {"input_json_delta": "partial_json"}}
EMPTY = {"text": {"type": "text", "text": ""}, "thinking": {"type": "thinking", "thinking": "", "signature": ""}}


def check_whole(answer, request):
    schema.check(Message, answer)
    assert FIELDS <= set(answer) and answer["id"].startswith("msg_")
    check_usage(answer["usage"])
    reason, blocks = answer["stop_reason"], answer["content"]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    assert reason in ("end_turn", "tool_use", "max_tokens", "stop_sequence")
    assert reason != "tool_use" or calls, "no call, but it is said that there is"
    assert reason in ("tool_use", "max_tokens") or not calls, "there is a call, but it is not said"
    assert (answer["stop_sequence"] is not None) == (reason == "stop_sequence")
    assert reason != "stop_sequence" or answer["stop_sequence"] in request.get("stop_sequences", [answer["stop_sequence"]])
    for call in calls:
        assert call["id"].startswith("toolu_") and isinstance(call["input"], dict)
        assert call["name"]
    assert len({call["id"] for call in calls}) == len(calls)
    for block in blocks:
        assert block["type"] in DELTAS, block
        assert block.get("text") != "" or len(blocks) > 1
        assert block["type"] != "thinking" or block["thinking"] and block["signature"]
    if (request.get("tool_choice") or {}).get("disable_parallel_tool_use"):
        assert len(calls) <= 1


def check_usage(usage):
    assert all(isinstance(usage[count], int) and usage[count] >= 0 for count in COUNTS)
    assert whole_prompt(usage) > 0


def whole_prompt(usage):
    """The tokens of the prompt, wherever they came from."""
    return sum(usage[count] for count in COUNTS[:3])


class Block:
    """A block of a stream, as it grows."""

    def __init__(self, start):
        self.kind = start["type"]
        self.start = start
        self.text = ""
        self.signature = None
        if self.kind == "tool_use":
            assert set(start) == {"type", "id", "name", "input"} and start["input"] == {}
        else:
            assert start == EMPTY[self.kind]

    def add(self, delta):
        field = DELTAS[self.kind][delta["type"]]
        assert set(delta) == {"type", field} and sse.is_text(delta[field])
        assert self.signature is None, "the signature comes last"
        if field == "signature":
            self.signature = delta[field]
        else:
            self.text += delta[field]

    def whole(self, is_cut):
        """Itself in one piece."""
        if self.kind == "text":
            return {**self.start, "text": self.text}
        if self.kind == "thinking":
            assert self.signature, "thinking is signed"
            return {**self.start, "thinking": self.text, "signature": self.signature}
        if is_cut and not sse.is_json_object(self.text):
            return self.start
        assert sse.is_json_object(self.text), f"the input of a call is a JSON object: {self.text!r}"
        return {**self.start, "input": json.loads(self.text)}


def check_stream(raw, request):
    start, *events, delta, stop = sse.named_events(raw)
    for event in (start, *events, delta, stop):
        if event["type"] == "ping":
            assert event == {"type": "ping"}
        else:
            schema.check(RawMessageStreamEvent, event)
    assert start["type"] == "message_start" and stop == {"type": "message_stop"}
    message = start["message"]
    schema.check(Message, message)
    assert set(message) == FIELDS
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)
    check_usage(message["usage"])
    blocks, is_open = [], False
    for event in events:
        if event["type"] == "ping":
            continue
        if event["type"] == "content_block_start":
            assert not is_open and event["index"] == len(blocks), "blocks come one after the other"
            blocks.append(Block(event["content_block"]))
            is_open = True
            continue
        assert is_open and event["index"] == len(blocks) - 1
        if event["type"] == "content_block_delta":
            blocks[-1].add(event["delta"])
        else:
            assert event["type"] == "content_block_stop"
            is_open = False
    assert not is_open, "a block has no end"
    assert delta["type"] == "message_delta" and set(delta["delta"]) == {"stop_reason", "stop_sequence"}
    check_usage(delta["usage"])
    assert whole_prompt(delta["usage"]) == whole_prompt(message["usage"])
    is_cut = delta["delta"]["stop_reason"] == "max_tokens"
    content = [block.whole(is_cut and block is blocks[-1]) for block in blocks]
    answer = {**message, **delta["delta"], "content": content, "usage": delta["usage"]}
    check_whole(answer, request)
    return answer
