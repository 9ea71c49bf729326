"""What coding agents send, answered by a small real model and by a tiny one with room for all of it."""

import json
import os

import jsonschema
import pytest
from agents import ALL
from conftest import serve
from protocol import check_error, check_headers, check_model, check_models, check_overflow, check_stream, check_whole
from raw import send

LIMIT = 24
# Long enough for a short text inside of JSON.
JSON_LIMIT = 400
# Prompts between these take a real model minutes all together, so they are left to a run with LONG_PROMPTS set. Those above the second
# do not fit into its context.
SHORT, LONG = 7_000, 39_000
# Images that tools have read are a note for a model that sees nothing; what the user shows is not.
USERS_IMAGE = "codex/variants/image-input"
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


@pytest.fixture(scope="module")
def small():
    """A real model that sees no images."""
    with serve("--slots", "2") as ready:
        yield ready


@pytest.fixture(scope="module")
def roomy():
    """Random, with images and a long context."""
    with serve("--slots", "1", model=os.environ["ROOMY_MODEL"]) as ready:
        assert ready["context"] == 65536
        yield ready


def of(requests):
    requests = list(requests)
    return pytest.mark.parametrize("request_", requests, ids=[request.name for request in requests])


def limit(request_):
    return JSON_LIMIT if request_.schema else LIMIT


def check(request_, server, body, answered=None):
    """Checks the answer to a body, which is sent unless the answer is there; returns it."""
    status, headers, answer = answered or request_.send(server, body)
    assert status == 200, answer
    check_headers(headers, streamed := body.get("stream", False))
    if streamed:
        answer = check_stream(request_.api, answer, body)
    else:
        answer = check_whole(request_.api, json.loads(answer), body)
    assert answer["model"] == server["model"]
    if request_.schema:
        text, is_cut = text_of(request_.api, answer)
        assert text[:1] in ("{", "")
        if not is_cut:
            jsonschema.validate(json.loads(text), request_.schema)
    return answer


def text_of(api, answer):
    """The text of an answer, and whether it was cut."""
    if api == "chat":
        choice = answer["choices"][0]
        return choice["message"]["content"] or "", choice["finish_reason"] == "length"
    if api == "messages":
        texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
        return "".join(texts), answer["stop_reason"] == "max_tokens"
    texts = [item["content"][0]["text"] for item in answer["output"] if item["type"] == "message"]
    return "".join(texts), answer["status"] == "incomplete"


@of(request for request in ALL if request.answers)
def test_a_model_with_room_answers(request_, roomy):
    body = request_.limited(limit(request_))
    answer = check(request_, roomy, body)
    if request_.api == "messages":
        counted = json.loads(request_.send(roomy, body, "/v1/messages/count_tokens")[2])
        usage = answer["usage"]
        assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


@of({request.client: request for request in ALL if request.answers}.values())
def test_the_other_mode_does_as_well(request_, roomy):
    check(request_, roomy, request_.limited(limit(request_), stream=not request_.body.get("stream", False)))


@of(request for request in ALL if request.counts)
def test_tokens_are_counted(request_, roomy):
    status, headers, counted = request_.send(roomy)
    assert status == 200, counted
    check_headers(headers, streamed=False)
    body = {**request_.body, "max_tokens": 1}
    answer = check_whole("messages", json.loads(request_.send(roomy, body, "/v1/messages")[2]), body)
    usage = answer["usage"]
    assert json.loads(counted) == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def is_for_a_small_model(request_):
    if not request_.answers or request_.name == USERS_IMAGE:
        return False
    return (SHORT <= request_.size <= LONG) == ("LONG_PROMPTS" in os.environ)


@of(filter(is_for_a_small_model, ALL))
def test_a_small_model_answers_or_says_that_it_is_too_much(request_, small):
    body = request_.limited(limit(request_))
    status, headers, answer = request_.send(small, body)
    if request_.size < SHORT or (status == 200 and request_.size <= LONG):
        check(request_, small, body, (status, headers, answer))
    else:
        _, context = check_overflow(request_.api, status, headers, json.loads(answer))
        assert context == small["context"]


def test_an_image_of_the_user_is_refused_by_a_model_that_sees_nothing(small):
    request_ = next(request for request in ALL if request.name == USERS_IMAGE)
    status, headers, answer = request_.send(small, request_.limited(LIMIT))
    error = check_error(request_.api, status, headers, json.loads(answer))
    assert status == 400 and "is an image" in error["message"] and error["param"].startswith("input[")


def test_a_limit_beyond_the_context_is_the_context(roomy):
    with serve("--context", "1024", model=os.environ["ROOMY_MODEL"]) as ready:
        request_ = next(request for request in ALL if request.name == "goose/requests/02")
        assert request_.body["max_tokens"] > 1024
        answer = check(request_, ready, request_.body)
    reason, usage = answer["choices"][0]["finish_reason"], answer["usage"]
    assert usage["total_tokens"] <= 1024 and (reason != "length" or usage["total_tokens"] == 1024)


@of(request for request in ALL if request.method != "POST")
def test_probes(request_, small):
    status, headers, answer = request_.send(small)
    path = request_.path.partition("?")[0]
    anthropics = any(name.lower() == "anthropic-version" for name, _ in request_.headers)
    if request_.method == "HEAD":
        assert (status, answer) == (200, b"")
    elif path == "/v1/models":
        assert status == 200 and check_models(json.loads(answer), anthropics) == [small["model"]]
    elif path.startswith("/v1/models/"):
        # A name that is not the model's; the list says which is.
        assert status == 404 and check_error("chat", status, headers, json.loads(answer))["code"] == "model_not_found"
    else:
        # Whoever answers these is taken for another program.
        assert status == 404
        check_error("chat", status, headers, json.loads(answer))


def test_the_list_describes_the_model(small):
    status, _, answer = send(small["url"], "GET", f"/v1/models/{small['model']}")
    model = json.loads(answer)
    assert status == 200 and check_model(model) == small["model"] and model["context_length"] == small["context"]
    for api, path in PATHS.items():
        status, headers, answer = send(small["url"], "POST", path, {"model": 5})
        assert status == 400
        check_error(api, status, headers, json.loads(answer))
