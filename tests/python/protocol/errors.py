"""Errors in the form of each API."""

import re

KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
         413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 503: "overloaded_error"}


def check_error(api, status, headers, body):
    """An error that is no stream; returns its `error` object."""
    assert status >= 400
    assert headers["content-type"] == "application/json"
    error = body["error"]
    if api == "messages":
        assert set(body) == {"type", "error", "request_id"} and body["type"] == "error"
        assert set(error) == {"type", "message"}
        assert error["type"] == KINDS[status]
        assert body["request_id"].startswith("req_") and headers["request-id"] == body["request_id"]
    else:
        assert set(body) == {"error"} and set(error) == {"message", "type", "param", "code"}
        assert all(isinstance(error[field], (str, type(None))) for field in ("param", "code"))
        assert isinstance(error["type"], str)
    if status in (429, 503):
        assert int(headers["retry-after"]) > 0
    assert error["message"] and "\n" not in error["message"]
    return error


def check_overflow(api, status, headers, body):
    """The error for a prompt that does not fit. Returns how many tokens it has and how many fit, as clients read them."""
    assert status == 400
    error = check_error(api, status, headers, body)
    assert error["type"] == "invalid_request_error"
    if api == "messages":
        numbers = re.fullmatch(r"prompt is too long: (\d+) tokens > (\d+) maximum", error["message"])
        assert numbers, error
        tokens, context = map(int, numbers.groups())
    else:
        assert error["code"] == "context_length_exceeded"
        limit = re.search(r"maximum context length is (\d+) tokens", error["message"])
        size = re.search(r"your messages resulted in (\d+) tokens", error["message"])
        assert limit and size and "reduce the length of the messages" in error["message"], error
        tokens, context = int(size[1]), int(limit[1])
    assert tokens >= context, "the prompt would have fitted"
    return tokens, context
