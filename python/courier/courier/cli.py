"""The command line: courier run, courier report."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from opencoti_langgraph.control import ControlClient, OpencotiError
from rich.console import Console

from courier.display import Lines, Screen
from courier.fleet import Fleet, RunAborted
from courier.history import History, HistoryError, run_record
from courier.journal import Journal, JournalError, read
from courier.report import write
from courier.workload import Workload, WorkloadError, load

STATE_FILE = "state.jsonl"
DONE, FAILED, WRONG, LOST, INTERRUPTED = 0, 1, 2, 3, 130


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number over 0")
    return value


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="courier", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a workload, or go on with a run that was cut")
    run.add_argument("workload", type=Path, metavar="WORKLOAD.yaml")
    run.add_argument(
        "--url",
        default=os.environ.get("POLYKV_URL", "http://127.0.0.1:8080"),
        help="the server (default: $POLYKV_URL, else %(default)s)",
    )
    run.add_argument(
        "--floor",
        type=positive,
        metavar="TPS",
        help="tokens per second, in place of the workload's",
    )
    run.add_argument("--naive", action="store_true", help="no gate: all agents at once")
    run.add_argument("--out", type=Path, help="folder of the run (default: NAME.run, NAME.naive)")
    run.add_argument("--fresh", action="store_true", help="start over instead of going on")
    run.add_argument("--plain", action="store_true", help="lines instead of a live table")
    run.add_argument(
        "--patience",
        type=float,
        default=300.0,
        metavar="S",
        help="give up when the server is gone for so many seconds (default: %(default)g)",
    )
    report = commands.add_parser("report", help="write the report of a run again")
    report.add_argument("run", type=Path, metavar="FOLDER")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    try:
        return run(options) if options.command == "run" else report(options)
    except (WorkloadError, JournalError, HistoryError, OSError) as error:
        print(f"courier: {error}", file=sys.stderr)
        return WRONG


def run(options: argparse.Namespace) -> int:
    workload = load(options.workload)
    if options.floor is not None:
        workload = workload.with_floor(options.floor)
    mode = "naive" if options.naive else "gated"
    suffix = "naive" if options.naive else "run"
    folder = options.out or Path(f"{options.workload.stem}.{suffix}")
    state = folder / STATE_FILE
    journal = Journal(state)
    try:
        begin(journal, workload, mode, options.fresh)
        return asyncio.run(drive(options, workload, journal, folder))
    finally:
        journal.close()


def begin(journal: Journal, workload: Workload, mode: str, fresh: bool) -> None:
    """Makes the journal that of this run, whether it goes on or begins."""
    if fresh:
        journal.clear()
    now = time.time()
    if not journal.records:
        journal.append(run_record(secrets.token_hex(4), mode, workload, now), durable=True)
    History(journal.records).check(mode, workload)
    journal.append({"kind": "life", "at": now, "pid": os.getpid()}, durable=True)


async def drive(
    options: argparse.Namespace, workload: Workload, journal: Journal, folder: Path
) -> int:
    console = Console()
    client = ControlClient(options.url, api_key=os.environ.get("POLYKV_API_KEY"))
    live = console.is_terminal and not options.plain
    outcome = DONE
    with Screen(console) if live else Lines(console) as audience:
        fleet = Fleet(workload, client, journal, audience, options.patience)
        work = asyncio.create_task(fleet.run())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        try:
            outcome = DONE if await work else FAILED
        except asyncio.CancelledError:
            outcome = INTERRUPTED
        except (RunAborted, OpencotiError) as error:
            print(f"courier: {options.url}: {error}", file=sys.stderr)
            outcome = LOST
    journal.append({"kind": "end", "at": time.time(), "outcome": outcome}, durable=True)
    console.print(f"report: {write(journal.records, folder)}", highlight=False, soft_wrap=True)
    if outcome in (LOST, INTERRUPTED):
        print("courier: what is finished is kept; the same command goes on", file=sys.stderr)
    return outcome


def report(options: argparse.Namespace) -> int:
    print(write(read(options.run / STATE_FILE), options.run))
    return DONE
