"""Requests captured from coding agents (`tests/fixtures/agents`), and how to send them."""

import json
import pathlib

from protocol import api_of
from raw import send

FOLDER = pathlib.Path(__file__).parent.parent / "fixtures/agents"
LIMITS = {"chat": ("max_completion_tokens", "max_tokens"), "responses": ("max_output_tokens",), "messages": ("max_tokens",)}


class Captured:
    """A request as a client sent it."""

    def __init__(self, path):
        self.name = str(path.relative_to(FOLDER).with_suffix(""))
        self.client = self.name.partition("/")[0]
        record = json.loads(path.read_text())
        self.method, self.path, self.body = record["method"], record["path"], record["body"]
        # The socket is another one; the rest is the client's, what encodings it takes included.
        self.headers = [(name, value) for name, value in record["headers"] if name.lower() not in ("host", "connection")]

    @property
    def counts(self):
        """Whether it only counts tokens."""
        return "/count_tokens" in self.path

    @property
    def answers(self):
        """Whether it asks for an answer."""
        return self.method == "POST" and not self.counts

    @property
    def api(self):
        return "messages" if self.counts else api_of(self.path)

    @property
    def size(self):
        """The bytes of what reaches a model, more or less."""
        return len(json.dumps([self.body.get(field) for field in ("system", "instructions", "messages", "input", "tools")]))

    @property
    def schema(self):
        """The schema that the answer must obey, if there is one."""
        forms = (self.body.get("output_config"), self.body.get("text"), {"format": self.body.get("response_format")})
        form = next((form["format"] for form in forms if form and form.get("format")), {})
        return form.get("schema") or form.get("json_schema", {}).get("schema")

    def limited(self, tokens, stream=None):
        """The body for an answer of at most so many tokens; in the other mode if `stream` says so."""
        body = json.loads(json.dumps(self.body))
        names = LIMITS[self.api]
        body[next((name for name in names if name in body), names[-1])] = tokens
        if stream is not None:
            body["stream"] = stream
        return body

    def send(self, server, body=None, path=None):
        return send(server["url"], self.method, path or self.path, self.body if body is None else body, self.headers)


ALL = [Captured(path) for path in sorted(FOLDER.rglob("*.json"))]
