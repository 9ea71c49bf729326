"""Schemathesis on the served document: whatever it sends, no answer is a server error."""

import os
import subprocess
import sys


def test_no_request_makes_a_server_error(open_server, tmp_path):
    document = open_server["url"].removesuffix("/v1") + "/openapi.json"
    program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    options = ["--checks", checks, "--max-examples", "40", "--seed", "1", "--request-timeout", "120", "--no-color"]
    result = subprocess.run([program, "run", document, *options], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
