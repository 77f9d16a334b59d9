"""What a run looks like on a terminal: a live table, or plain lines where there is none."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from courier.agent import Agent, Answer
from courier.fleet import Fleet
from courier.journal import Record

QUIET_EVENTS = {"hold"}  # too many for lines; the live table shows the latest


def answer_line(answer: Answer) -> str:
    """A finished step. The first words are for programs too: `done PACKAGE/STEP`."""
    parts = [f"{answer.n_generated} tokens", f"{answer.ended_at - answer.asked_at:.1f} s"]
    if answer.session_tps is not None:
        parts.append(f"{answer.session_tps:.1f} tokens/s")
    return f"done {answer.package}/{answer.step}: {', '.join(parts)}, {answer.n_cached} cached"


def event_line(record: Record) -> str:
    parts = [str(record[field]) for field in ("name", "subject", "detail") if record[field]]
    return " · ".join(parts)


class Lines:
    """One line per finished step and event."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step_finished(self, answer: Answer) -> None:
        self._print(answer_line(answer))

    def event(self, record: Record) -> None:
        if record["name"] not in QUIET_EVENTS and record["source"] == "courier":
            self._print(event_line(record))

    def tick(self, fleet: Fleet) -> None:
        pass

    def _print(self, line: str) -> None:
        seconds = time.monotonic() - self._started_at
        self._console.print(f"{seconds:7.1f} s  {line}", markup=False, highlight=False)


class Screen:
    """A table that is drawn again and again, with the lines of finished steps above it."""

    def __init__(self, console: Console) -> None:
        self._lines = Lines(console)
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def step_finished(self, answer: Answer) -> None:
        self._lines.step_finished(answer)

    def event(self, record: Record) -> None:
        self._lines.event(record)

    def tick(self, fleet: Fleet) -> None:
        self._live.update(picture(fleet))


def picture(fleet: Fleet) -> Group:
    """The whole run at one moment."""
    n_steps = sum(len(job.steps) for job in fleet.jobs)
    n_done = sum(len(job.answers) for job in fleet.jobs)
    n_packages = sum(job.is_done for job in fleet.jobs)
    head = Text(
        f"{fleet.workload.name} ({fleet.mode})  {n_packages} of {len(fleet.jobs)} packages, "
        f"{n_done} of {n_steps} steps",
        style="bold",
    )
    bar = Padding(ProgressBar(total=n_steps, completed=n_done), 0)  # which ends its line
    return Group(head, bar, rate_line(fleet), table(fleet))


def rate_line(fleet: Fleet) -> Text:
    """The mean rate against the floor, and what the gate says."""
    if fleet.is_lost:
        return Text("the server does not answer; waiting for it", style="yellow")
    if fleet.last_tick is None:
        return Text("opening the pool …")
    floor = fleet.workload.floor.target_tps_per_session
    mean = fleet.last_tick.capacity["mean_active_tps"]
    line = Text()
    if mean is not None:
        line.append(f"mean {mean:.1f} tokens/s", style="red" if mean < floor else "green")
    line.append(f"  floor {floor:g}  gate: {fleet.last_tick.decision.reason}")
    return line


def table(fleet: Fleet) -> Table:
    """A row per agent at work."""
    rows = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("agent", "step", "tokens", "tokens/s", "state"):
        rows.add_column(title, justify="right" if title.startswith("tokens") else "left")
    seen = fleet.last_tick.rates["sessions"] if fleet.last_tick is not None else []
    sessions = {session["session_id"]: session for session in seen}
    for agent in fleet.agents.values():
        session = sessions.get(agent.session_id)
        rate = None if session is None else session["tps_ewma"]
        state = "starting" if session is None else session["state"]
        rows.add_row(
            Text(agent.job.package.id),
            Text(_step_of(agent)),
            str(agent.n_tokens),
            "" if rate is None else f"{rate:.1f}",
            "resting next" if agent.should_rest else state,
        )
    return rows


def _step_of(agent: Agent) -> str:
    job = agent.job
    n = len(job.answers)
    return f"{n + 1}/{len(job.steps)} {job.steps[n].id}" if n < len(job.steps) else "done"
