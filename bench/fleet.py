"""The same workload with agents that start behind a gate and all at once: who keeps the floor.

Both runs are `courier run` on the workload that ships with it, each on a fresh server with the same
flags. Time under the floor is that in which the mean rate of the decoding sessions, as the server
reports it, is under the floor. The work is the same if both runs finish every step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from harness import options as paths, stats
from harness.server import ServerProcess
from harness.targets import Target, print_verdict

UNDER_FLOOR = 0.5  # of the time that all at once are under it
WORKLOAD = Path(__file__).resolve().parents[1] / "python/courier/workloads/project-review.yaml"
FLAGS = ("-c", "32768", "-np", "16", "--kv-unified")
MODES = {"naive": ["--naive"], "gated": []}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--model")
    python = os.environ.get("POLYKV_PACKAGES_PYTHON")
    parser.add_argument("--python", default=python, required=python is None, help="runs courier")
    parser.add_argument("--workload", type=Path, default=WORKLOAD)
    parser.add_argument("--floor", type=float, default=20.0, help="tokens per second and session")
    parser.add_argument("--keep", type=Path, help="folder for state and reports of both runs")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as temporary:
        folder = options.keep or Path(temporary)
        reports = {mode: measure(options, folder, mode) for mode in MODES}
    print_figures(reports)
    targets = [
        Target("time under the floor, gated/naive", ratio(reports, "under_floor_s"), UNDER_FLOOR, True),
        Target("steps finished, gated/naive", ratio(reports, "n_steps_done"), 1.0),
    ]
    print_verdict(targets)
    return {
        "flags": FLAGS,
        "floor": options.floor,
        "runs": {mode: report["summary"] for mode, report in reports.items()},
        "targets": [target.as_json() for target in targets],
    }


def measure(options: argparse.Namespace, folder: Path, mode: str) -> dict[str, Any]:
    """One run on a server of its own; its report."""
    print(f"--- {mode} ---", flush=True)
    out = folder / mode
    command = [options.python, "-m", "courier", "run", str(options.workload), "--fresh", "--plain"]
    command += ["--out", str(out), "--floor", str(options.floor), *MODES[mode]]
    flags = ("-m", options.model, *FLAGS)
    with ServerProcess(options.server, flags, folder / f"{mode}.log") as server:
        subprocess.run([*command, "--url", server.base_url], check=True)
    return json.loads((out / "report.json").read_text(encoding="utf-8"))


def ratio(reports: dict[str, Any], name: str) -> float:
    naive, gated = (reports[mode]["summary"][name] for mode in ("naive", "gated"))
    return gated / naive if naive else float("inf")


ROWS = {
    "steps finished": "n_steps_done",
    "tokens generated": "n_generated",
    "wall time, s": "wall_s",
    "median package done after, s": "median_delivery_s",
    "mean agents at work": "mean_agents",
    "mean tokens/s of a session": "mean_active_tps",
    "time under the floor, s": "under_floor_s",
    "… under half of it, s": "under_half_floor_s",
    "sessions' time under it, s": "session_under_floor_s",
}


def print_figures(reports: dict[str, Any]) -> None:
    rows = [
        [title, *(reports[mode]["summary"][name] for mode in MODES), ratio(reports, name)]
        for title, name in ROWS.items()
    ]
    print(stats.table(["", *MODES, "ratio"], rows), end="\n\n")
