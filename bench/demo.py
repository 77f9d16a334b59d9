"""Eight agents ask one long document different questions at once: with a pool, then without.

    python3 bench/demo.py --server PATH --model PATH --llama-source DIR

Starts the server, makes a pool from instructions and a real document, lets all agents ask at once
and prints what each saw; then the same on a fresh server without the pool. Exits 0 only when every
agent was answered from the pool (its cached tokens are the pool's prefix) and every answer, in both
runs, was finished.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import client, options as paths, stats, text
from harness.client import Completion
from harness.progress import Progress
from harness.server import ServerError, ServerProcess, end_on_sigterm

INSTRUCTIONS = (
    "You are one of several agents who work on the same document. Answer the question of the user "
    "from the document below, in a few sentences and in your own words. If the document does not "
    "say, say so.\n\n"
)
DOCUMENT_FILES = ("LICENSE", "README.md")
DOCUMENT_TOKENS = 3600
# Room for eight agents that share nothing, so that both runs use the same flags.
SERVER_FLAGS = ("-c", "32768", "-np", str(len(text.QUESTIONS)), "--kv-unified")


@dataclass(frozen=True)
class Run:
    """What one fan-out gave. `prepare_s` is the creation of the pool; it counts in `wall_s`."""

    wall_s: float
    prepare_s: float
    prefix_len: int | None
    answers: list[Completion]

    @property
    def finished(self) -> bool:
        return all(answer.error is None and answer.finish_reason for answer in self.answers)

    @property
    def from_pool(self) -> int:
        """How many agents found exactly the pool's prefix."""
        return sum(cached_tokens(answer) == self.prefix_len for answer in self.answers)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo", description=(__doc__ or "").splitlines()[0])
    paths.add_paths(parser, "--server", "--model", "--llama-source")
    parser.add_argument("--max-tokens", type=paths.positive, default=64)
    return parser.parse_args()


def cached_tokens(answer: Completion) -> int | None:
    """The cached prompt tokens that the answer reports; None when its two counts differ."""
    usage = next((c["usage"] for c in reversed(answer.chunks) if c.get("usage")), {})
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return cached if cached == answer.timings.get("cache_n") else None


def system_message(base_url: str, llama_source: str) -> dict[str, str]:
    """The instructions with the document below them."""
    document = text.document(llama_source, DOCUMENT_FILES)
    content = INSTRUCTIONS + text.shorten(base_url, document, DOCUMENT_TOKENS)
    return {"role": "system", "content": content}


def fan_out(base_url: str, options: argparse.Namespace, pooled: bool) -> Run:
    """Sends all questions at once, from a pool if `pooled`, and waits for the last answer."""
    system = system_message(base_url, options.llama_source)
    start = time.monotonic()
    extra: dict[str, Any] = {}
    prefix_len = None
    if pooled:
        pool = client.call(base_url, "POST", "/polykv/pools", {"messages": [system]})
        prefix_len = pool["prefix_len"]
        extra = {"pool_id": pool["pool_id"]}
        print(f"pool {pool['pool_id']}: {prefix_len} tokens, {time.monotonic() - start:.1f} s")
    prepare_s = time.monotonic() - start
    answers = ask_all(base_url, system, extra, options.max_tokens)
    wall_s = max(answer.ended_at for answer in answers) - start
    return Run(wall_s, prepare_s, prefix_len, answers)


def ask_all(
    base_url: str, system: dict[str, str], extra: dict[str, Any], max_tokens: int
) -> list[Completion]:
    n_agents = len(text.QUESTIONS)
    with Progress(f"{n_agents} agents", n_agents * max_tokens) as progress:

        def ask(question: str) -> Completion:
            body = {
                "messages": [system, {"role": "user", "content": question}],
                "max_tokens": max_tokens,
                "temperature": 0,
                "stream_options": {"include_usage": True},
                **extra,
            }
            path = "/v1/chat/completions"
            answer = client.stream_completion(base_url, path, body, on_token=progress.advance)
            progress.advance(max_tokens - len(answer.token_times))
            return answer

        with ThreadPoolExecutor(n_agents) as executor:
            return list(executor.map(ask, text.QUESTIONS))


def print_agents(run: Run) -> None:
    header = ["agent", "TTFT, s", "tokens/s", "tokens", "cached", "pool prefix", "end"]
    rows = [
        [
            question[:40],
            answer.ttft_s,
            answer.tokens_per_second,
            answer.timings.get("predicted_n", 0),
            cached_tokens(answer),
            "-" if run.prefix_len is None else run.prefix_len,
            answer.finish_reason or f"error: {answer.error}",
        ]
        for question, answer in zip(text.QUESTIONS, run.answers, strict=True)
    ]
    print(stats.table(header, rows), end="\n\n")


def print_closing(pooled: Run, plain: Run) -> None:
    n_agents = len(pooled.answers)
    print(f"first agent's answer: {pooled.answers[0].text.strip()}\n")
    print(f"answered from the pool: {pooled.from_pool} of {n_agents} agents")
    rows = [
        ["with the pool", pooled.wall_s, mean_ttft(pooled)],
        ["without", plain.wall_s, mean_ttft(plain)],
        ["ratio", plain.wall_s / pooled.wall_s, mean_ttft(plain) / mean_ttft(pooled)],
    ]
    print(stats.table(["", "wall time, s", "mean TTFT, s"], rows))
    print(f"The wall time with the pool counts its creation, {pooled.prepare_s:.2f} s.")


def mean_ttft(run: Run) -> float:
    return stats.mean(answer.ttft_s for answer in run.answers)


def measure(options: argparse.Namespace, logs: Path, pooled: bool) -> Run:
    """One fan-out on a server of its own, printed."""
    name = "with the pool" if pooled else "without a pool"
    print(f"--- {name} ---", flush=True)
    flags = ["-m", options.model, *SERVER_FLAGS]
    with ServerProcess(options.server, flags, logs / f"{pooled}.log") as server:
        run = fan_out(server.base_url, options, pooled)
    print_agents(run)
    return run


def main() -> int:
    end_on_sigterm()
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="polykv-demo-") as logs:
        try:
            pooled = measure(options, Path(logs), pooled=True)
            plain = measure(options, Path(logs), pooled=False)
        except (ServerError, client.HttpError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
    print_closing(pooled, plain)
    complete = pooled.from_pool == len(pooled.answers) and pooled.finished and plain.finished
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
