"""Simulates a scenario: the server's own admission, planner and meters under a manual clock.

    ./polykv sim --scenario NAME|FILE [--cost NAME|FILE] [--sweep]
    ./polykv sim --overshoot
    ./polykv sim --fit

A program of its own (bench/sim/) runs the engine on a fake model whose steps take as long as the
scenario's cost says, with simulated clients. Prints what clients and pools got, and writes everything
as JSON and the rates against the floor as an SVG chart. --overshoot: the policy of a run that overshot
its floor, and the measured admission on the same traffic. --fit: measures the cost of the default
model's steps on a running server.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sim_fit
import sim_overshoot
from harness import chart, options as paths, stats
from harness.server import end_on_sigterm
from harness.targets import print_verdict

ROOT = Path(__file__).resolve().parent.parent
SCENARIOS = ROOT / "bench" / "sim" / "scenarios"
COSTS = ROOT / "bench" / "sim" / "costs"
RESULTS = ROOT / "bench" / "results"
CLOSE = 0.95  # of the floor
SHARE = 0.95  # of the samples

Document = dict[str, Any]


def load(name: str, folder: Path) -> Document:
    """The JSON file of that path, or of that name in the folder."""
    path = Path(name)
    if not path.is_file():
        path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.json")))
        raise SystemExit(f"there is no {name}; there are {known}")
    return json.loads(path.read_text(encoding="utf-8"))


def with_cost(scenario: Document, cost: Document | None = None) -> Document:
    """The scenario with `cost`, or with the file of costs that it names, in place."""
    if cost is None and isinstance(scenario["cost"], str):
        cost = load(scenario["cost"], COSTS)
    return {**scenario, "cost": cost or scenario["cost"]}


def simulate(program: Path, scenario: Document) -> Document:
    """What came of it. Raises SystemExit when the program refuses the scenario."""
    done = subprocess.run(
        [program, "-"], input=json.dumps(scenario), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{program.name}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


def program_of(server: str) -> Path:
    return Path(server).with_name("polykv-sim")


@dataclass(frozen=True)
class PoolFigures:
    """Of one pool with a policy; seconds of simulated time."""

    pool: str
    floor: float
    most: int  # sessions at the same time
    last: int
    mean: float
    under_s: float
    deep_s: float  # under half of the floor
    share: float  # of the samples that are over 0.95 × floor
    settled_share: float  # the same, of those while nothing settles


def pool_figures(series: Document) -> PoolFigures:
    rows, floor = series["rows"], series["floor"]
    spans = [(row, after[0] - row[0]) for row, after in zip(rows, rows[1:])]
    busy = [(row, s) for row, s in spans if row[1] > 0]
    settled = [row for row, _ in busy if not row[5]]
    return PoolFigures(
        pool=series["pool"],
        floor=floor,
        most=max((row[3] for row in rows), default=0),
        last=rows[-1][3] if rows else 0,
        mean=sum(row[1] * s for row, s in busy) / (sum(s for _, s in busy) or 1),
        under_s=sum(s for row, s in busy if row[1] < floor),
        deep_s=sum(s for row, s in busy if row[1] < floor / 2),
        share=sum(row[1] >= CLOSE * floor for row, _ in busy) / (len(busy) or 1),
        settled_share=sum(row[1] >= CLOSE * floor for row in settled) / (len(settled) or 1),
    )


def pool_table(outcome: Document) -> str:
    header = ["pool", "floor", "mean tps", "most", "last", "under, s", "under half, s", "settled ok"]
    rows: list[list[object]] = []
    for series in outcome["series"]:
        f = pool_figures(series)
        share = f"{f.settled_share:.0%}"
        rows.append([f.pool, f.floor, f.mean, f.most, f.last, f.under_s, f.deep_s, share])
    return stats.table(header, rows)


def client_table(outcome: Document) -> str:
    header = ["agents", "sent", "done", "turns", "refused", "ttft p50", "p95", "tps p50", "p5"]
    rows: list[list[object]] = []
    for group in dict.fromkeys(client["group"] for client in outcome["clients"]):
        clients = [client for client in outcome["clients"] if client["group"] == group]
        turns = [turn for client in clients for turn in client["turns"]]
        waits = [first - asked for asked, first, _, _ in turns]
        rates = [(n - 1) / (last - first) for _, first, last, n in turns if last > first]
        rows.append([
            group,
            len(clients),
            sum(client["done"] is not None for client in clients),
            len(turns),
            sum(client["refused"] for client in clients),
            *(stats.percentile(waits, p) if waits else "-" for p in (0.5, 0.95)),
            *(stats.percentile(rates, p) if rates else "-" for p in (0.5, 0.05)),
        ])
    return stats.table(header, rows)


def charts_of(outcome: Document) -> list[chart.Chart]:
    """For each pool with a policy its rate against the floor, and its sessions."""
    charts = []
    for series in outcome["series"]:
        rows = series["rows"]
        floor = [(rows[0][0], series["floor"]), (rows[-1][0], series["floor"])] if rows else []
        rates = [
            chart.Line("mean tps", [(row[0], row[1] or None) for row in rows]),
            chart.Line("floor", floor, dashed=True),
            chart.Line("projected for one more", [(row[0], row[6]) for row in rows], dashed=True),
        ]
        sessions = [
            chart.Line("attached", [(row[0], row[3]) for row in rows], steps=True),
            chart.Line("decoding", [(row[0], row[2]) for row in rows], steps=True),
            chart.Line("queued", [(row[0], row[4]) for row in rows], steps=True),
        ]
        charts.append(chart.Chart(f"pool {series['pool']}", "seconds", "tokens/s", rates))
        charts.append(chart.Chart("sessions", "seconds", "sessions", sessions))
    return charts


def write(outcome: Document, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sim-{outcome['scenario']}.json"
    path.write_text(json.dumps(outcome) + "\n", encoding="utf-8")
    path.with_suffix(".svg").write_text(chart.render(charts_of(outcome)), encoding="utf-8")
    print(f"written: {path} and {path.with_suffix('.svg').name}")


def run_scenario(options: argparse.Namespace, program: Path) -> None:
    cost = load(options.cost, COSTS) if options.cost else None
    scenario = with_cost(load(options.scenario, SCENARIOS), cost)
    if options.sweep:
        return run_sweep(scenario, program)
    began = time.monotonic()
    outcome = simulate(program, scenario)
    took = time.monotonic() - began
    print(f"{scenario['name']}: {scenario.get('about', '')}\n")
    print(client_table(outcome), pool_table(outcome), sep="\n\n")
    print(
        f"\n{outcome['seconds']:.0f} s of traffic in {took:.1f} s:"
        f" {outcome['steps']} steps, {outcome['tokens']} tokens, {outcome['parked']} parked"
    )
    write({**outcome, "scenario": scenario["name"], "input": scenario}, options.out)


def run_overshoot(program: Path) -> bool:
    """Prints both policies on the fitted cost and on SmolLM2's; whether all targets are met."""
    scenario = with_cost(load("overshoot", SCENARIOS))

    def run(document: Document) -> Document:
        return simulate(program, document)

    before = sim_overshoot.baseline(scenario, run)
    after = sim_overshoot.measured(scenario, run)
    sim_overshoot.report_rates(before)
    print()
    sim_overshoot.report(before, after)
    targets = sim_overshoot.targets(before, after)
    print()
    print_verdict(targets)
    print("\nthe same with the cost of SmolLM2's steps\n")
    real = with_cost(scenario, load("smollm2", COSTS))
    sim_overshoot.report(sim_overshoot.baseline(real, run), sim_overshoot.measured(real, run))
    return all(target.met for target in targets)


def constant(scenario: Document, n_agents: int) -> Document:
    """The scenario without a gate, and its groups with one agent after the other in so many places."""
    pools = [
        {**pool, "policy": {**pool["policy"], "mode": "advisory"}} if "policy" in pool else pool
        for pool in scenario["pools"]
    ]
    groups = [
        {**group, "at_once": n_agents, "every_s": 0.1} if group.get("pool") else group
        for group in scenario["groups"]
    ]
    return {**scenario, "pools": pools, "groups": groups}


def run_sweep(scenario: Document, program: Path) -> None:
    """The scenario with fixed numbers of agents, as long as a floor holds."""
    rows: list[list[object]] = []
    for n in range(1, 65):
        outcome = simulate(program, constant(scenario, n))
        figures = [pool_figures(series) for series in outcome["series"]]
        for f in figures:
            rows.append([n, f.pool, f.floor, f.mean, f"{f.share:.0%}", f.under_s, f.deep_s])
        if all(f.share < SHARE for f in figures):
            break
    header = ["agents", "pool", "floor", "mean tps", "over 0.95 x", "under, s", "under half, s"]
    print(stats.table(header, rows))


def save_cost(name: str, cost: Document) -> None:
    path = COSTS / f"{name}.json"
    fields = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in cost.items()]
    path.write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")
    print(f"{path.read_text(encoding='utf-8')}written: {path}")


def main() -> int:
    end_on_sigterm()
    parser = argparse.ArgumentParser(
        prog="sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    paths.add_paths(parser, "--server", "--model", "--llama-source")
    known = ", ".join(sorted(p.stem for p in SCENARIOS.glob("*.json")))
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--scenario", help=f"a JSON file, or one of {known}")
    what.add_argument("--overshoot", action="store_true", help="compare two policies")
    what.add_argument("--fit", action="store_true", help="write bench/sim/costs/smollm2.json")
    what.add_argument("--fit-overshoot", action="store_true", help="write bench/sim/costs/seed.json")
    parser.add_argument("--cost", help="step costs in place of the scenario's: a file or a name")
    parser.add_argument("--sweep", action="store_true", help="fixed numbers of agents, without a gate")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for JSON and chart")
    options = parser.parse_args()
    program = program_of(options.server)
    if options.fit:
        save_cost("smollm2", sim_fit.fit(options.server, options.model, options.llama_source))
    elif options.fit_overshoot:
        scenario = with_cost(load("overshoot", SCENARIOS))
        save_cost("seed", sim_overshoot.fit(scenario, lambda document: simulate(program, document)))
    elif options.overshoot:
        return 0 if run_overshoot(program) else 1
    else:
        run_scenario(options, program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
