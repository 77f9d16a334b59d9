"""What the pool tree costs: attaches and forks, idle pools, idle cells; from inside, without HTTP.

A program of its own (bench/tree/) drives the engine by hand. Attach and fork: the engine's time for the
whole command, on a pool of so many cells that so many sequences hold. Token gap: the longest pause that
a share, or its end, puts between two decodes of another stream, without the usual one. Engine step: our
own code's time per step of four streams, on a model that costs nothing. Meters: what a decoded token costs
them, and a look at a rate, of which a policy takes one per stream and step. Decode: llama_decode's time
beside cells of idle sequences, and when they are gone from the cache.
"""

from __future__ import annotations

import argparse
from typing import Any

from harness import options as paths, program, stats
from harness.targets import Target, print_verdict

PARTS = ("share", "gap", "step", "meter", "idle")
BASE_US, US_PER_CELL = 1000, 0.4
GAP_MS = 5
STEP_GROWTH = 1.1
BACK = 1.1
# Of all streams together: more than SmolLM2 gives on two cores at any number of them.
TOKENS_PER_S = 1000
LOOKS_PER_TOKEN = 4
METER_SHARE = 0.002

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--model")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="a few small points, to try it out")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    size = "quick" if options.quick else "full"
    arguments = [options.model, size, *options.parts]
    rows = program.measure(options.server, "polykv-bench-tree", arguments)
    targets: list[Target] = []
    for part in options.parts:
        targets += REPORTS[part](rows)
    print()
    print_verdict(targets)
    return {
        "flags": ["-m", options.model],
        "targets": [target.as_json() for target in targets],
        "rows": rows,
    }


def of(rows: list[Row], table: str) -> list[Row]:
    return [row for row in rows if row["table"] == table]


def distinct(rows: list[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def count(value: float) -> str:
    """2048 is 2k."""
    return f"{value / 1024:.0f}k" if value >= 1024 else f"{value:.0f}"


def print_table(title: str, header: list[str], rows: list[list[object]]) -> None:
    print(f"\n{title}\n")
    print(stats.table(header, rows))


def report_share(rows: list[Row]) -> list[Target]:
    shares = of(rows, "share")
    holders = distinct(shares, "holders")
    lines: dict[tuple[Any, ...], list[object]] = {}
    for row in shares:
        for what, us in ((row["what"], row["us"]), (f"end of {row['what']}", row["give_up_us"])):
            key = (row["backend"], what, row["cells"])
            label = f"{row['backend']}, {what}, {count(row['cells'])} cells"
            lines.setdefault(key, [label]).append(us / 1000)
    header = ["ms, by sequences that hold the cells", *(f"{n:.0f}" for n in holders)]
    print_table("attach and fork", header, [line for _, line in sorted(lines.items())])
    memory = [
        [f"{row['backend']}, {count(row['cells'])} cells", row["bytes_per_holder"] / row["cells"]]
        for row in of(rows, "memory")
    ]
    print_table("host memory of one more fork", ["", "bytes per cell"], memory)
    return [
        Target(
            f"{what} on {backend}, of 1 ms + 0.4 µs per cell",
            max(
                row["us"] / (BASE_US + US_PER_CELL * row["cells"])
                for row in shares
                if row["backend"] == backend and row["what"] == what
            ),
            1,
            at_most=True,
        )
        for backend in distinct(shares, "backend")
        for what in ("attach", "fork")
    ]


def report_gap(rows: list[Row]) -> list[Target]:
    gaps = of(rows, "gap")
    lines = [
        [
            f"{row['what']}, {count(row['cells'])} cells, {way(row)}",
            row["added_us"] / 1000,
            row["end_us"] / 1000,
        ]
        for row in gaps
    ]
    print_table("longer pause of a decoding stream, ms", ["", "share", "its end"], lines)
    return [
        Target(
            f"{what} in pieces, longest pause added, ms",
            max(
                row["added_us"] / 1000
                for row in gaps
                if row["what"] == what and row["pieces"] == "yes"
            ),
            GAP_MS,
            at_most=True,
        )
        for what in ("attach", "fork")
    ]


def way(row: Row) -> str:
    return "in pieces" if row["pieces"] == "yes" else "in one go"


def report_step(rows: list[Row]) -> list[Target]:
    steps = of(rows, "step")
    lines = [
        [
            f"{row['pools']:.0f} pools, {row['sessions']:.0f} sessions",
            f"{row['on_thread_ns']:.0f}",
            f"{row['by_hand_ns']:.0f}",
        ]
        for row in steps
    ]
    header = ["beside idle", "as it serves", "with a snapshot each"]
    print_table("engine step of 4 streams without the model, ns", header, lines)
    growth = max(row["on_thread_ns"] for row in steps) / steps[0]["on_thread_ns"]
    return [Target("engine step beside idle ones, growth", growth, STEP_GROWTH, at_most=True)]


def report_meter(rows: list[Row]) -> list[Target]:
    ns = {row["what"]: row["ns"] for row in of(rows, "meter")}
    lines: list[list[object]] = [[what, f"{value:.1f}"] for what, value in ns.items()]
    print_table("meters", ["", "ns"], lines)
    share = (ns["token"] + LOOKS_PER_TOKEN * ns["look"]) * TOKENS_PER_S / 1e9
    return [
        Target(
            f"time of the meters at {TOKENS_PER_S} tokens per second, %",
            100 * share,
            100 * METER_SHARE,
            at_most=True,
        )
    ]


def report_idle(rows: list[Row]) -> list[Target]:
    idle = of(rows, "idle")
    streams = distinct(idle, "streams")
    lines: dict[tuple[Any, ...], list[object]] = {}
    for row in idle:
        what = f"{count(row['cells'])} idle cells" if row["when"] == "beside" else row["when"]
        label = f"flash attention {row['flash_attention']}, {what}"
        lines.setdefault((label,), [label]).append(row["us"] / 1000)
    header = ["llama_decode, ms, by streams", *(f"{n:.0f}" for n in streams)]
    print_table("beside cells of idle sequences", header, list(lines.values()))
    alone = {
        (row["flash_attention"], row["streams"]): row["us"]
        for row in idle
        if row["when"] == "beside" and row["cells"] == 0
    }
    return [
        Target(
            f"decode with the idle cells in host memory, flash attention {attention}",
            max(
                row["us"] / alone[attention, row["streams"]]
                for row in idle
                if row["when"] == "streams moved down" and row["flash_attention"] == attention
            ),
            BACK,
            at_most=True,
        )
        for attention in distinct(idle, "flash_attention")
    ]


REPORTS = {
    "share": report_share,
    "gap": report_gap,
    "step": report_step,
    "meter": report_meter,
    "idle": report_idle,
}
