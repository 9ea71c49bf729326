"""What a model says, in all three APIs, whole and streamed, taken apart by the checkers of `protocol`."""

import json
import os

import pytest
from protocol import check_error, check_headers, check_stream, check_whole
from raw import send
from said import READ, call, say, tools

APIS = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
LIMITS = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}

# Name: what is said; then the expected thinking, text, calls.
SAID = {
    "text": ("Grüße, 世界! 🦀", None, "Grüße, 世界! 🦀", []),
    "nothing": ("", None, "", []),
    "thinking": ("<think>\nHm, 🦀.\n</think>\n\nYes.", "Hm, 🦀.", "Yes.", []),
    "one call": (call("read", path="naïve 日本"), None, "", [("read", {"path": "naïve 日本"})]),
    "a call after thinking and text": (
        "<think>\nOne file.\n</think>\n\nReading:\n" + call("read", path="a\nb\"\\"), "One file.", "Reading:",
        [("read", {"path": "a\nb\"\\"})],
    ),
    "parallel calls": (
        call("read", path="a") + "\n" + call("list") + "\n" + call("read", path="</tool_call"), None, "",
        [("read", {"path": "a"}), ("list", {}), ("read", {"path": "</tool_call"})],
    ),
    "no arguments": (call("list"), None, "", [("list", {})]),
    "almost a call": ("<tool_cal> and <tool", None, "<tool_cal> and <tool", []),
}


def body(api, text, **more):
    fields = {"input": text} if api == "responses" else {"messages": [{"role": "user", "content": text}]}
    return {"model": "any", **fields, LIMITS[api]: 2000, "tools": tools(api), **more}


def ask(api, request):
    status, headers, answer = send(os.environ["BASE_URL"], "POST", PATHS[api], request)
    assert status == 200, answer
    check_headers(headers, request.get("stream", False))
    if request.get("stream"):
        return check_stream(api, answer, request)
    return check_whole(api, json.loads(answer), request)


def read(api, answer):
    """Thinking, text and calls of an answer."""
    if api == "chat":
        message = answer["choices"][0]["message"]
        calls = [call["function"] for call in message.get("tool_calls", [])]
        calls = [(call["name"], json.loads(call["arguments"])) for call in calls]
        return message.get("reasoning_content"), message["content"] or "", calls
    items = answer["output" if api == "responses" else "content"]
    thinking = [item["summary"][0]["text"] if api == "responses" else item["thinking"]
                for item in items if item["type"] in ("reasoning", "thinking")]
    text = [item["content"][0]["text"] if api == "responses" else item["text"]
            for item in items if item["type"] in ("message", "text")]
    calls = [(item["name"], json.loads(item["arguments"])) for item in items if item["type"] == "function_call"]
    calls += [(item["name"], item["input"]) for item in items if item["type"] == "tool_use"]
    return "".join(thinking) or None, "".join(text), calls


@pytest.mark.parametrize("strict", (False, True), ids=("free", "strict"))
@pytest.mark.parametrize("stream", (False, True), ids=("whole", "stream"))
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", SAID)
def test_what_is_said_arrives(name, api, stream, strict):
    said, thinking, text, calls = SAID[name]
    more = {"stream_options": {"include_usage": True}} if stream and api == "chat" else {}
    answer = ask(api, body(api, say(said), stream=stream, tools=tools(api, strict=strict), **more))
    found = read(api, answer)
    assert found[0] == thinking or found[0].strip() == thinking
    assert found[1].strip() == text
    assert found[2] == calls


@pytest.mark.parametrize("stream", (False, True), ids=("whole", "stream"))
@pytest.mark.parametrize("api", APIS)
def test_a_call_of_a_tool_that_is_not_there(api, stream):
    request = body(api, say(call("write", path="a")), stream=stream)
    assert read(api, ask(api, request))[2] == [("write", {"path": "a"})]
    # Strict tools are the only ones, and get what they ask for.
    strict = ask(api, {**request, "tools": tools(api, READ, strict=True), LIMITS[api]: 6000})
    assert [(name, list(arguments)) for name, arguments in read(api, strict)[2]] == [("read", ["path"])]


@pytest.mark.parametrize("stream", (False, True), ids=("whole", "stream"))
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("said", ("<think>\nThis takes long.\n</think>\n\nA long text.", "A long text. " * 3,
                                  "Reading: " + call("read", path="a" * 100), call("list") + call("read", path="a")),
                         ids=("thinking", "text", "call", "calls"))
def test_a_limit_anywhere_leaves_a_whole_answer(said, api, stream):
    counts = set()
    for limit in (1, 2, 5, 9, 14, 20, 27, 31, 40, 60, 80, 95):
        answer = ask(api, body(api, say(said), stream=stream, **{LIMITS[api]: limit}))
        if api == "chat" and not stream:
            counts.add(answer["usage"]["completion_tokens"] <= limit)
        elif api != "chat":
            counts.add(answer["usage"]["output_tokens"] <= limit)
    assert counts <= {True}


@pytest.mark.parametrize("stream", (False, True), ids=("whole", "stream"))
@pytest.mark.parametrize("api", APIS)
def test_one_call_at_a_time(api, stream):
    one = {"messages": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}}
    more = one.get(api, {"parallel_tool_calls": False})
    answer = ask(api, body(api, say(call("read", path="a") + call("list")), stream=stream, **more))
    assert read(api, answer)[2] == [("read", {"path": "a"})]


@pytest.mark.parametrize("api", APIS)
def test_usage_is_the_same_whole_and_streamed(api):
    more = {"stream_options": {"include_usage": True}} if api == "chat" else {}
    request = body(api, say("<think>\nHm.\n</think>\n\nYes." + call("list")))
    assert ask(api, request)["usage"] == ask(api, {**request, **more, "stream": True})["usage"]


def test_several_replies_at_once():
    for stream in (False, True):
        answer = ask("chat", body("chat", say("Yes." + call("list")), n=2, stream=stream))
        assert [choice["message"]["content"] for choice in answer["choices"]] == ["Yes."] * 2


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("wrong", (
    {"tools": 5}, {"tool_choice": "sometimes"}, {"temperature": "hot"}, {"messages": {}, "input": 7},
    {"max_tokens": -1, "max_output_tokens": -1},
))
def test_errors_have_the_form_of_the_api(api, wrong):
    status, headers, answer = send(os.environ["BASE_URL"], "POST", PATHS[api], {**body(api, "a"), **wrong})
    assert status == 400
    error = check_error(api, status, headers, json.loads(answer))
    if api != "messages":
        assert error["param"] in (*wrong, "tools", "tool_choice")
