"""Runs one benchmark by name and writes its result as JSON.

    python3 bench/bench.py fanout --runs 5

A benchmark is a module with `add_arguments(parser)` and `run(options) -> dict`; the dict has
"flags" and the figures. To add one, write the module beside this file and enter it in BENCHES.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import attention
import connections
import decode
import fanout
import fleet
import floor
import goodput
import ramp
import stall
import status
import tree
from harness import machine
from harness.server import end_on_sigterm

BENCHES = {
    "fanout": fanout,
    "fleet": fleet,
    "decode": decode,
    "stall": stall,
    "floor": floor,
    "status": status,
    "connections": connections,
    "tree": tree,
    "attention": attention,
    "ramp": ramp,
    "goodput": goodput,
}

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


def parse_options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="PolyKV benchmarks")
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, module in BENCHES.items():
        summary = (module.__doc__ or "").splitlines()[0]
        bench = names.add_parser(name, help=summary, description=summary)
        bench.add_argument("--json", type=Path, help="result file (default: bench/results/…)")
        module.add_arguments(bench)
    return parser.parse_args(arguments)


def write_result(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"\nwritten: {path}")


def main() -> int:
    end_on_sigterm()
    options = parse_options(sys.argv[1:])
    warnings = machine.load_warnings()
    for warning in warnings:
        print(f"warning: the machine is not quiet: {warning}", file=sys.stderr)
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    header = {
        "bench": options.name,
        "started": started,
        "commit": machine.commit(ROOT),
        "machine": machine.describe(),
        "load_warnings": warnings,
    }
    figures = BENCHES[options.name].run(options)
    default = RESULTS / f"{options.name}-{started.replace(':', '')}.json"
    write_result(options.json or default, {**header, **figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
