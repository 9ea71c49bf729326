"""Chat Completions."""

import json

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from . import schema, sse

REASONS = ("stop", "length", "tool_calls")


def check_whole(answer, request):
    schema.check(ChatCompletion, answer)
    assert answer["id"].startswith("chatcmpl-") and answer["object"] == "chat.completion"
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == list(range(request.get("n") or 1))
    ids = []
    for choice in choices:
        message = choice["message"]
        assert message["role"] == "assistant" and "content" in message
        assert message.get("reasoning_content") != ""
        calls = message.get("tool_calls")
        assert calls is None or calls, "no calls, no list"
        assert message["content"] is not None or calls, "null only beside calls"
        check_calls(calls or [], choice["finish_reason"], request)
        ids += [call["id"] for call in calls or []]
    assert len(set(ids)) == len(ids)
    check_usage(answer["usage"])


def check_calls(calls, reason, request):
    assert reason in REASONS
    assert reason != "tool_calls" or calls, "no call, but it is said that there is"
    assert reason != "stop" or not calls, "there is a call, but it is not said"
    for index, call in enumerate(calls):
        assert call["type"] == "function" and call["id"].startswith("call_")
        assert call["function"]["name"]
        is_cut = reason == "length" and index == len(calls) - 1
        assert is_cut or sse.is_json_object(call["function"]["arguments"]), call
    if request.get("parallel_tool_calls") is False:
        assert len(calls) <= 1


def check_usage(usage):
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    assert 0 <= usage["completion_tokens_details"]["reasoning_tokens"] <= usage["completion_tokens"]
    assert usage["prompt_tokens"] > 0


class Choice:
    """One reply of a stream, as it grows."""

    def __init__(self):
        self.message = {"role": "assistant", "content": "", "refusal": None}
        self.calls = []
        self.reason = None
        self.has_begun = False

    def add(self, delta, reason):
        assert self.reason is None, "something follows the end"
        if not self.has_begun:
            assert delta == {"role": "assistant", "content": ""} and reason is None
            self.has_begun = True
            return
        assert "role" not in delta
        self.reason = reason
        if reason:
            assert delta == {}, "the last chunk of a reply says nothing more"
            return
        assert len(delta) == 1, f"one thing at a time: {delta}"
        kind, piece = next(iter(delta.items()))
        if kind == "reasoning_content":
            assert piece and sse.is_text(piece)
            assert not self.message["content"] and not self.calls, "thinking comes before the answer"
            self.message["reasoning_content"] = self.message.get("reasoning_content", "") + piece
        elif kind == "content":
            assert sse.is_text(piece)
            self.message["content"] += piece
        else:
            assert kind == "tool_calls" and len(piece) == 1
            self.call(piece[0])

    def call(self, piece):
        if "id" in piece:
            assert piece["index"] == len(self.calls)
            assert set(piece) == {"index", "id", "type", "function"} and set(piece["function"]) == {"name", "arguments"}
            self.calls.append({**piece, "function": dict(piece["function"])})
        else:
            assert piece["index"] == len(self.calls) - 1, "calls come one after the other"
            assert set(piece) == {"index", "function"} and set(piece["function"]) == {"arguments"}
            assert sse.is_text(piece["function"]["arguments"])
            self.calls[-1]["function"]["arguments"] += piece["function"]["arguments"]

    def whole(self, index):
        assert self.reason, "a reply has no end"
        if self.calls:
            self.message["content"] = self.message["content"] or None
            self.message["tool_calls"] = [{key: call[key] for key in ("id", "type", "function")} for call in self.calls]
        return {"index": index, "message": self.message, "finish_reason": self.reason, "logprobs": None}


def check_stream(raw, request):
    *chunks, done = [data for _, data in sse.events(raw, named=False)]
    assert done == "[DONE]"
    chunks = [json.loads(chunk) for chunk in chunks]
    head = {field: chunks[0][field] for field in ("id", "created", "model", "object")}
    choices = [Choice() for _ in range(request.get("n") or 1)]
    usage = None
    for chunk in chunks:
        schema.check(ChatCompletionChunk, chunk)
        assert {field: chunk[field] for field in head} == head
        assert usage is None, "something follows the usage"
        if chunk["choices"]:
            assert chunk.get("usage") is None and len(chunk["choices"]) == 1
            choice = chunk["choices"][0]
            choices[choice["index"]].add(choice["delta"], choice["finish_reason"])
        else:
            assert all(choice.reason for choice in choices), "the usage comes last"
            usage = chunk["usage"]
    asked = (request.get("stream_options") or {}).get("include_usage") is True
    assert (usage is not None) == asked, "usage is there if it was asked for"
    answer = {**head, "object": "chat.completion", "choices": [choice.whole(i) for i, choice in enumerate(choices)]}
    if usage is None:
        zero = {"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}}
        usage = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1, **zero}
        check_whole({**answer, "usage": usage}, request)
    else:
        answer["usage"] = usage
        check_whole(answer, request)
    return answer
