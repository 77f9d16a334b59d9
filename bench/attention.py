"""Decoding and prefilling by our own attention kernel against ggml's, in turns on one build.

A program of its own (bench/attention/) loads the model once. Every other step of the same streams is
computed by ggml's flash attention and by ours, so that both see the same cells and the same machine; a
point's figure is the ratio of the medians. A point has so many streams, in groups that share so many
cells, and so many cells of each stream's own, one of each stream after the other as decoding leaves them.
Everything else of a step, the Q4_1 products of src/matmul among it, is the same for both.
"""

from __future__ import annotations

import argparse
from typing import Any

from harness import options as paths, program, stats
from harness.targets import Target, print_verdict

STEPS = 24
POOL = 2048
WANTED = {1: 1.3, 8: 1.9, 16: 2.1, 32: 2.3}  # by streams on one pool
PREFILL = 1.1
QUANTIZED = 3.0
NO_SLOWER = 0.98

# streams, shared cells, own cells, groups, idle cells
Shape = tuple[int, int, int, int, int]
MAIN: list[Shape] = [(n, POOL, 64, 1, 0) for n in WANTED]
SWEEP: list[Shape] = [
    *((n, POOL, 64, 1, 0) for n in (2, 4, 64)),
    *((n, p, 16, 1, 0) for n in (1, 16) for p in (16, 512, 8192)),
    (8, POOL, 512, 1, 0),
    (8, 0, 512, 1, 0),
    (16, 1024, 64, 2, 0),
    (1, 0, 64, 1, 16_384),
    (8, POOL, 64, 1, 16_384),
]

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--model")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each kernel at a point")
    parser.add_argument("--quick", action="store_true", help="without the sweep")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    shapes = MAIN if options.quick else MAIN + SWEEP
    rows = measure(options, "f16", POOL, shapes) + measure(options, "q8_0", 0, [MAIN[2]])
    table = [[label(row), row["ggml_us"] / 1000, row["ours_us"] / 1000, ratio(row)] for row in rows]
    print()
    print(stats.table(["ms per step, or for the prompt", "ggml", "ours", "ratio"], table))
    targets = [target(row) for row in rows]
    print()
    print_verdict(targets)
    return {
        "flags": ["-m", options.model],
        "targets": [target.as_json() for target in targets],
        "rows": rows,
    }


def measure(
    options: argparse.Namespace, cache_type: str, prompt: int, shapes: list[Shape]
) -> list[Row]:
    arguments = [options.model, cache_type, str(options.steps), str(prompt)]
    arguments += [":".join(map(str, shape)) for shape in shapes]
    return program.measure(options.server, "polykv-bench-attention", arguments)


def label(row: Row) -> str:
    suffix = "" if row["cache_type"] == "f16" else f", {row['cache_type']} cells"
    if row["table"] == "prefill":
        return f"a prompt of {row['tokens']:.0f} tokens{suffix}"
    text = f"{row['streams']:.0f} streams, {row['prefix']:.0f} shared, {row['own']:.0f} own"
    if row["groups"] > 1:
        text += f", {row['groups']:.0f} groups"
    if row["idle"] > 0:
        text += f", {row['idle']:.0f} idle"
    return text + suffix


def ratio(row: Row) -> float:
    return float(row["ggml_us"] / row["ours_us"])


def target(row: Row) -> Target:
    wanted = NO_SLOWER
    if row["table"] == "prefill":
        wanted = PREFILL
    elif row["cache_type"] != "f16":
        wanted = QUANTIZED
    elif row["prefix"] == POOL and row["own"] == 64 and row["groups"] == 1 and row["idle"] == 0:
        wanted = WANTED.get(int(row["streams"]), NO_SLOWER)
    return Target(f"{label(row)}, times ggml's", ratio(row), wanted)

