"""Requests without a client library, so that nothing is mended on the way."""

import http.client
import json
from urllib.parse import urlsplit


def send(url, method, path, body=None, headers=()):
    """The answer's status, headers (names in lower case) and bytes."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=300)
    try:
        headers = {**dict(headers), **({} if body is None else {"Content-Type": "application/json"})}
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()
