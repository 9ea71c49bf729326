"""Many clients of all kinds on one server, for a while: nothing fails that should not, nothing is left behind.

    python3 tests/python/soak.py --bin target/release/kapitsa --model MODEL.gguf --clients 200 --seconds 600 --warm 1000

Asserted: every answer has a status that its request may have; a reply is the same before and after; slots and queue come back to
zero; resident memory stays within 2 % once the server is warm, which is when the clock starts: every slot has held a full context,
and so many replies were made that nearly every shape of step has been met. Needs Linux, and nothing but Python.
"""

import argparse
import asyncio
import collections
import json
import random
import re
import statistics
import subprocess
import sys
import time

WORDS = "the a model river stone letter seven of and to in blue function returns list 日本 naïve 🦀 x = ( ) { } \n".split(" ")
LIMIT = 64 << 20
SLOTS, CONTEXT = 4, 512


class Client:
    """One connection."""

    def __init__(self, port):
        self.port = port

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    def send(self, method, path, body=b"", length=None):
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        head += f"content-length: {len(body) if length is None else length}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def status(self):
        line = await asyncio.wait_for(self.reader.readline(), 600)
        return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else None

    async def body(self, pause=0.0):
        """The rest of the answer, with a pause after every piece."""
        body = b""
        while piece := await self.reader.read(1024 if pause else 65536):
            body += piece
            await asyncio.sleep(pause)
        return body


def prompt(draw, words):
    return " ".join(draw.choices(WORDS, k=words))


def chat(draw, **options):
    request = {"messages": [{"role": "user", "content": prompt(draw, draw.choice([1, 5, 20, 100]))}], "max_tokens": draw.randint(1, 24)}
    request["stream"] = draw.random() < 0.6
    request["temperature"] = draw.choice([0, 0.7, 1.3])
    if draw.random() < 0.2:
        request["logprobs"], request["top_logprobs"] = True, draw.randint(0, 20)
    if draw.random() < 0.1:
        request["n"] = draw.randint(2, 3)
    if draw.random() < 0.2:
        request["stop"] = draw.choice(["the", ["a", "."], "\n"])
    return json.dumps({**request, **options}).encode()


CHAT = "/v1/chat/completions"


async def whole(draw, client):
    client.send("POST", CHAT, chat(draw))
    status = await client.status()
    body = await client.body()
    assert status != 200 or b'"finish_reason":"' in body, body[-300:]
    return status


async def slow(draw, client):
    client.send("POST", CHAT, chat(draw, stream=True, max_tokens=40))
    status = await client.status()
    await client.body(pause=draw.uniform(0.01, 0.1))
    return status


async def leaves(draw, client):
    client.send("POST", CHAT, chat(draw, max_tokens=1000))
    try:
        await asyncio.wait_for(client.reader.read(300), draw.uniform(0.0, 1.0))
    except asyncio.TimeoutError:
        pass
    client.writer.transport.abort()
    return "left"


async def garbage(draw, client):
    client.writer.write(draw.randbytes(draw.randint(1, 2000)) + b"\r\n\r\n")
    client.writer.write_eof()
    return await client.status() or "closed"


async def malformed(draw, client):
    good = chat(draw)
    body = draw.choice([good[: draw.randint(0, len(good) - 1)], b"\xff" + good, b"[" * 5000, chat(draw, messages=7), chat(draw, n=-1)])
    client.send("POST", draw.choice([CHAT, "/completions"]), body)
    return await client.status()


async def oversized(draw, client):
    client.send("POST", CHAT, b"{", length=LIMIT + draw.randint(1, 1 << 30))
    return await client.status()


async def overflowing(draw, client):
    client.send("POST", CHAT, chat(draw, messages=[{"role": "user", "content": prompt(draw, 20_000)}]))
    status = await client.status()
    assert status != 400 or b"context_length_exceeded" in await client.body()
    return status


async def stalls(draw, client):
    client.send("POST", CHAT, b"{", length=500)
    await asyncio.sleep(draw.uniform(0, 2))
    return "left"


async def looks(draw, client):
    client.send("GET", draw.choice(["/v1/models", "/health", "/metrics", "/openapi.json", "/"]))
    return await client.status()


# What clients do, how often, and what may come of it.
KINDS = [
    (whole, 10, {200, 429}),
    (slow, 3, {200, 429}),
    (leaves, 5, {"left"}),
    (garbage, 1, {400, 404, 405, "closed"}),
    (malformed, 2, {400, 429}),
    (oversized, 1, {413}),
    (overflowing, 1, {400, 429}),
    (stalls, 1, {"left"}),
    (looks, 2, {200}),
]


class Course:
    """What has happened so far, and until when it goes on."""

    def __init__(self, warm, seconds):
        self.warm, self.seconds = warm, seconds
        self.seen = collections.Counter()
        self.start = None

    def is_over(self):
        if self.start is None and sum(self.seen[kind, 200] for kind in ("whole", "slow")) >= self.warm:
            self.start = time.monotonic()
        return self.start is not None and time.monotonic() > self.start + self.seconds


async def run(port, seed, course):
    draw = random.Random(seed)
    while not course.is_over():
        kind, _, allowed = draw.choices(KINDS, weights=[weight for _, weight, _ in KINDS])[0]
        try:
            async with Client(port) as client:
                outcome = await kind(draw, client)
        except (ConnectionResetError, BrokenPipeError):
            # Who sends garbage may be cut off in the middle of it.
            outcome = "closed"
        course.seen[kind.__name__, outcome] += 1
        assert outcome in allowed, f"{kind.__name__}: {outcome}"
        if outcome == 429:
            await asyncio.sleep(draw.uniform(0.1, 1))


async def get(port, path):
    async with Client(port) as client:
        client.send("GET", path)
        assert await client.status() == 200
        return (await client.body()).split(b"\r\n\r\n", 1)[1]


async def known_reply(port):
    request = {"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 40, "temperature": 0}
    async with Client(port) as client:
        client.send("POST", CHAT, json.dumps(request).encode())
        assert await client.status() == 200
        return json.loads((await client.body()).split(b"\r\n\r\n", 1)[1])["choices"]


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) / 1024


async def watch(pid, course, sizes):
    while not course.is_over():
        if course.start is not None:
            sizes.append(resident(pid))
        await asyncio.sleep(0.5)


async def fill(port):
    """Fills a slot: memory for contexts is taken when it is first needed, and kept."""
    request = {"messages": [{"role": "user", "content": "the " * (CONTEXT - 80)}], "max_tokens": 60}
    async with Client(port) as client:
        client.send("POST", CHAT, json.dumps(request).encode())
        assert await client.status() == 200
        await client.body()


async def soak(args, process, port):
    before = await known_reply(port)
    await asyncio.gather(*[fill(port) for _ in range(SLOTS)])
    course, sizes = Course(args.warm, args.seconds), []
    clients = [run(port, args.seed * 10_000 + index, course) for index in range(args.clients)]
    await asyncio.gather(watch(process.pid, course, sizes), *clients)
    for _ in range(600):
        health = json.loads(await get(port, "/health"))
        if health["slots_busy"] == health["queue"] == 0:
            break
        await asyncio.sleep(0.1)
    assert health["slots_busy"] == health["queue"] == 0, health
    assert await known_reply(port) == before, "the reply has changed"

    fifth = max(1, len(sizes) // 5)
    first, last = statistics.median(sizes[:fifth]), statistics.median(sizes[-fifth:])
    for (kind, outcome), count in sorted(course.seen.items(), key=str):
        print(f"{kind:>12} {outcome!s:>7} {count:>8}")
    for line in (await get(port, "/metrics")).decode().splitlines():
        if line.startswith(("kapitsa_requests_total", "kapitsa_tokens_total")):
            print(line)
    print(f"{args.clients} clients, {time.monotonic() - course.start:.0f} s; resident {first:.1f} -> {last:.1f} MB, at most {max(sizes):.1f} MB")
    assert last <= first * 1.02, f"resident memory grew from {first:.1f} to {last:.1f} MB"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm", type=int, default=300, help="replies before the clock starts")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    command = [args.bin, "serve", "--model", args.model, "--port", "0", "--json"]
    command += ["--slots", str(SLOTS), "--context", str(CONTEXT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            ready = process.stdout.readline()
            assert ready, "the server did not start"
            port = int(json.loads(ready)["address"].rsplit(":", 1)[1])
            asyncio.run(soak(args, process, port))
            process.terminate()
            assert process.wait(timeout=10) == 0, "the server did not end well"
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
