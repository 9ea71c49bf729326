"""Starts `kapitsa serve`; the tests in crates/cli/tests/serve.rs say which program and which model."""

import contextlib
import json
import os
import subprocess

import pytest

pytest.register_assert_rewrite("protocol")


@contextlib.contextmanager
def serve(*options, model=None):
    """A server on a free port: what it says of itself once it is ready."""
    command = [os.environ["PROGRAM"], "serve", "--model", model or os.environ["MODEL"], "--port", "0", "--json"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line, "the server did not start; its stderr says why"
        try:
            yield json.loads(line)
            assert process.poll() is None, "the server has ended"
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.fixture(scope="session")
def server():
    """With a key, strict names, and one slot."""
    with serve("--api-key", "secret", "--strict-models", "--slots", "1", "--context", "2048") as ready:
        yield ready


@pytest.fixture(scope="session")
def open_server():
    """Without a key, and with a context so short that every reply is."""
    with serve("--context", "256") as ready:
        yield ready
