"""Time to the first token of a warm start, and peak memory, beside llama-server.

python3 benches/first_token.py KAPITSA LLAMA_SERVER MODEL.gguf [ROUNDS]

Each round starts either server anew with two threads and asks a short and then, after another start, a long question; the
clock runs from the start of the process to the first token that arrives. The model's file is in the page cache after the
first round.
"""

import http.client
import json
import statistics
import subprocess
import sys
import time

PORT = 8091
QUESTIONS = {
    "short": "Say hello.",
    "long": " ".join(f"Item {i}: the quick brown fox number {i} jumps." for i in range(40)),
}


def first_token(command: list[str], question: str) -> tuple[float, int]:
    """Seconds to the first token, and the peak of the process's memory in KiB."""
    start = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not answers(question):
            if server.poll() is not None:
                sys.exit(f"{command[0]} has ended with {server.returncode}")
            time.sleep(0.005)
        seconds = time.perf_counter() - start
        with open(f"/proc/{server.pid}/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    finally:
        server.terminate()
        server.wait()
    return seconds, peak


def answers(question: str) -> bool:
    """Asks; returns at the first token, or when there is no server yet."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    messages = [{"role": "user", "content": question}]
    body = {"model": "any", "messages": messages, "stream": True, "max_tokens": 4, "temperature": 0}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status == 200 and any(has_text(line) for line in response)
    except ConnectionError:
        return False
    finally:
        connection.close()


def has_text(line: bytes) -> bool:
    if not line.startswith(b"data: {"):
        return False
    choices = json.loads(line[6:])["choices"]
    return bool(choices and choices[0]["delta"].get("content"))


def main() -> None:
    kapitsa, llama_server, model = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    commands = {
        "kapitsa": [kapitsa, "serve", "--threads", "2", "--port", str(PORT), "--model", model],
        "llama-server": [llama_server, "-m", model, "-t", "2", "--no-warmup", "-c", "8192", "--port", str(PORT)],
    }
    for name, question in QUESTIONS.items():
        runs = {server: [] for server in commands}
        for _ in range(rounds):
            for server, command in commands.items():
                runs[server].append(first_token(command, question))
        for server, found in runs.items():
            seconds = statistics.median(seconds for seconds, _ in found)
            print(f"{name}, {server}: {seconds:.2f} s to the first token, peak {max(peak for _, peak in found)} KiB")


if __name__ == "__main__":
    main()
