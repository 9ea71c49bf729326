"""What the three APIs promise, checked from outside: whole answers, streams event by event, errors and lists of models.

An API is "chat", "responses" or "messages". Nothing here knows how the server is made.
"""

from . import chat, messages, responses
from .errors import check_error, check_overflow
from .models import check_model, check_models

__all__ = ["api_of", "check_error", "check_headers", "check_model", "check_models", "check_overflow", "check_stream",
           "check_whole"]

APIS = {"chat": chat, "responses": responses, "messages": messages}


def api_of(path):
    """The API of a path, which may have a query and lack `/v1`."""
    ends = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}
    return next(api for end, api in ends.items() if path.partition("?")[0].endswith(end))


def check_headers(headers, streamed):
    """The headers of an answer that is not an error."""
    expected = "text/event-stream" if streamed else "application/json"
    assert headers["content-type"].partition(";")[0] == expected
    assert "content-encoding" not in headers
    if streamed:
        assert headers["cache-control"] == "no-cache"


def check_whole(api, answer, request=None):
    """Checks a whole answer, against its request if that is given. Returns it."""
    APIS[api].check_whole(answer, request or {})
    return answer


def check_stream(api, raw, request=None):
    """Checks the bytes of a stream that went well, against its request if that is given. Returns the whole answer in it."""
    return APIS[api].check_stream(raw, request or {})
