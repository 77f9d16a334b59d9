"""The cost of the steps of a real model, measured over HTTP, as the simulator wants it.

Streams of short prompts decode together, 1 to 16 of them: what a step costs by its streams. The same
behind long prompts: what the cells cost that they attend to. Prompts alone, short and long, and behind
a long beginning: what their tokens cost.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from harness import client, stats, text
from harness.crowd import Call, Crowd
from harness.server import ServerProcess

ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
SHORT, LONG, LONG_ROWS = 16, 2048, 4
PROMPTS = (64, 512)
TOKENS, REPEATS = 48, 3
MICRO = 1e6


class Fit:
    """One server and the measurements on it; times are in seconds."""

    def __init__(self, server: ServerProcess, document: list[int]) -> None:
        self._url = server.base_url
        self._document = document
        self._next = 0

    def prompt(self, n_tokens: int) -> list[int]:
        """Text that no request had before."""
        self._next += 37
        return text.cut(self._document, self._next * 11, n_tokens)

    def step_s(self, n_streams: int, n_prompt: int) -> float:
        """Between two tokens of each stream while all of them decode."""
        prompts = [self.prompt(n_prompt) for _ in range(n_streams)]
        bodies = [
            {"prompt": tokens, "id_slot": slot, "n_predict": TOKENS, "stream": True, "ignore_eos": True}
            for slot, tokens in enumerate(prompts)
        ]
        with Crowd(self._url) as crowd:  # so that later all begin to decode at once
            for body in bodies:
                crowd.send(Call("POST", "/completion", {**body, "n_predict": 1}))
            crowd.finish()
        with Crowd(self._url) as crowd:
            calls = [crowd.send(Call("POST", "/completion", body)) for body in bodies]
            crowd.finish()
        begin = max(call.event_times[1] for call in calls)
        end = min(call.event_times[TOKENS - 1] for call in calls)
        n_steps = sum(begin < at <= end for call in calls for at in call.event_times[:TOKENS])
        return (end - begin) * n_streams / n_steps

    def prefill_s(self, n_tokens: int, n_before: int) -> float:
        """Of so many prompt tokens behind others that are computed already."""
        tokens = self.prompt(n_before + n_tokens)
        body = {"id_slot": 0, "n_predict": 1, "ignore_eos": True}
        if n_before > 0:
            client.call(self._url, "POST", "/completion", {**body, "prompt": tokens[:n_before]})
        answer = client.call(self._url, "POST", "/completion", {**body, "prompt": tokens})
        timings = answer["timings"]
        return timings["prompt_ms"] / 1000 * n_tokens / timings["prompt_n"]


def best(measure: Any) -> float:
    """The median of a few: what the machine does otherwise is not the model's cost."""
    return stats.median(measure() for _ in range(REPEATS))


def fit(binary: str, model: str, llama_source: str) -> dict[str, Any]:
    """The cost, as a file of bench/sim/costs has it."""
    flags = ["-m", model, "-c", "65536", "-np", str(max(ROWS)), "-t", str(os.cpu_count())]
    with tempfile.TemporaryDirectory(prefix="polykv-fit-") as logs:
        with ServerProcess(binary, flags, Path(logs) / "server.log") as server:
            document = text.tokenize(server.base_url, text.document(llama_source))
            return measure(Fit(server, document), Path(model).name)


def measure(server: Fit, model: str) -> dict[str, Any]:
    decode = {n: best(lambda n=n: server.step_s(n, SHORT)) for n in ROWS}
    long_s = best(lambda: server.step_s(LONG_ROWS, LONG))
    cell_s = max(0.0, (long_s - decode[LONG_ROWS]) / (LONG_ROWS * (LONG - SHORT)))
    small, large = (best(lambda n=n: server.prefill_s(n, 0)) for n in PROMPTS)
    behind = best(lambda: server.prefill_s(PROMPTS[1], LONG))
    prompt_cell_s = max(0.0, (behind - large) / (PROMPTS[1] * LONG))
    small -= prompt_cell_s * PROMPTS[0] ** 2 / 2
    large -= prompt_cell_s * PROMPTS[1] ** 2 / 2
    token_s = (large - small) / (PROMPTS[1] - PROMPTS[0])
    return {
        "about": f"{model}, measured by ./polykv sim --fit",
        "decode_us": [[n, round(s * MICRO)] for n, s in decode.items()],
        "prompt_us": max(0, round((small - token_s * PROMPTS[0] - decode[1]) * MICRO)),
        "prompt_token_us": round(token_s * MICRO, 1),
        "cell_us": round(cell_s * MICRO, 3),
        "prompt_cell_us": round(prompt_cell_s * MICRO, 3),
    }
