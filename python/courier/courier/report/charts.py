"""The charts of a report, as SVG."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from courier.report.figures import LONGEST_SAMPLE_S
from courier.report.markup import Markup, tag

Json = dict[str, Any]
Point = tuple[float, float]

WIDTH = 1000.0
LEFT, RIGHT, TOP = 110.0, 14.0, 10.0
AXIS = 22.0  # below a plot, for its times
ROW = 20.0
MOST_SAMPLES = 1500


@dataclass(frozen=True)
class Plot:
    """Maps seconds and values to the drawing."""

    total_s: float
    top: float
    height: float
    most: float = 1.0  # the value at the upper edge; 0 is at the lower one

    def x(self, seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / max(self.total_s, 1e-9)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - min(value, self.most) / self.most)

    @property
    def longest_gap_s(self) -> float:
        """Between two points of one line."""
        return max(LONGEST_SAMPLE_S, 3 * self.total_s / MOST_SAMPLES)

    @property
    def bottom(self) -> float:
        return self.top + self.height


def rates_chart(report: Json) -> Markup:
    """Tokens per second against the floor, and below it how many agents were at work."""
    floor = report["floor"]["target_tps_per_session"]
    samples = _thinned(report["samples"])
    total_s = report["summary"]["wall_s"]
    rates = Plot(total_s, TOP, 260.0, _most_rate(samples, floor))
    agents = Plot(total_s, rates.bottom + 26, 60.0, max(1, report["summary"]["most_agents"]))
    return _svg(
        "Tokens per second of the sessions against the floor",
        agents.bottom + AXIS,
        [_band(rates, agents.bottom, span) for span in report["settling"]],
        _value_axis(rates, "tokens/s"),
        _value_axis(agents, "agents", steps=2),
        _time_axis(agents, rates.top),
        _life_lines(report, rates.top, agents),
        _session_lines(samples, rates),
        _mean_line(samples, rates, floor),
        tag(
            "line",
            class_="floor",
            x1=LEFT,
            x2=WIDTH - RIGHT,
            y1=rates.y(floor),
            y2=rates.y(floor),
        ),
        _text(WIDTH - RIGHT, rates.y(floor) - 5, f"floor {floor:g}", "end", "floor-name"),
        _agent_steps(samples, agents),
    )


def gantt_chart(report: Json) -> Markup:
    """A row per package: waiting for the first token, then decoding, step by step."""
    packages = report["packages"]
    plot = Plot(report["summary"]["wall_s"], TOP, ROW * len(packages))
    floor = report["floor"]["target_tps_per_session"]
    rows: list[Markup] = []
    for i, package in enumerate(packages):
        top = plot.top + ROW * i
        rows.append(_text(LEFT - 8, top + 14, _shorten(package["package"], 17), "end"))
        rows.extend(_bar(step, plot, top, floor) for step in package["steps"])
        rows.extend(_marks(report["events"], package["package"], plot, top))
    return _svg(
        "What each agent did when",
        plot.bottom + AXIS,
        [_band(plot, plot.bottom, span) for span in report["settling"]],
        _time_axis(plot, plot.top),
        _life_lines(report, plot.top, plot),
        rows,
    )


def cache_chart(cache: Json) -> Markup:
    """Where the tokens of all prompts came from, as one bar."""
    total = max(1, cache["n_prompt"])
    x, parts = 0.0, []
    for kind, name in (
        ("from-pool", "pool"),
        ("from-session", "session"),
        ("computed", "computed"),
    ):
        n = cache[f"n_{kind.replace('-', '_')}"]
        width = WIDTH * n / total
        title = tag("title", f"{name}: {n:,} tokens")
        parts.append(tag("rect", title, class_=kind, x=x, y=0, width=width, height=28))
        x += width
    label = "Where the tokens of all prompts came from"
    return _svg(label, 28, parts, class_="bar", preserveAspectRatio="none")


def _svg(label: str, height: float, *content: Any, **attributes: str) -> Markup:
    box = f"0 0 {WIDTH:.0f} {height:.0f}"
    return tag("svg", *content, viewBox=box, role="img", aria_label=label, **attributes)


def _text(x: float, y: float, text: str, anchor: str, class_: str = "") -> Markup:
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def _shorten(text: str, n: int) -> str:
    return text if len(text) <= n else f"{text[: n - 1]}…"


def _band(plot: Plot, bottom: float, span: Sequence[float]) -> Markup:
    x, end = plot.x(span[0]), plot.x(span[1])
    title = tag("title", f"settling, {span[1] - span[0]:.1f} s")
    width, height = max(end - x, 0.5), bottom - plot.top
    return tag("rect", title, class_="settling", x=x, y=plot.top, width=width, height=height)


def nice_step(most: float, n: int) -> float:
    """1, 2 or 5 times a power of ten, so that about `n` of them make `most`."""
    rough = max(most, 1e-9) / n
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.999)


def _thinned(samples: Sequence[Json]) -> Sequence[Json]:
    """About as many as the drawing has room for."""
    return samples[:: max(1, len(samples) // MOST_SAMPLES)]


def _most_rate(samples: Sequence[Json], floor: float) -> float:
    means = [sample["mean_active_tps"] or 0.0 for sample in samples]
    rates = sorted(rate for sample in samples for rate in sample["tps"].values())
    usual = rates[int(len(rates) * 0.98)] if rates else 0.0  # a first few fast tokens may go out
    return max([1.4 * floor, usual, *means]) * 1.05


def _value_axis(plot: Plot, unit: str, steps: int = 5) -> Iterator[Markup]:
    step = nice_step(max(plot.most, steps), steps)  # at least 1
    for i in range(int(plot.most / step) + 1):
        y = plot.y(i * step)
        yield tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
        yield _text(LEFT - 8, y + 4, f"{i * step:g}", "end")
    yield _text(8, plot.top + 12, unit, "start", "unit")


def _time_axis(plot: Plot, top: float) -> Iterator[Markup]:
    step = nice_step(plot.total_s, 8)
    for i in range(int(plot.total_s / step) + 1):
        x = plot.x(i * step)
        yield tag("line", class_="grid", x1=x, x2=x, y1=top, y2=plot.bottom)
        yield _text(x, plot.bottom + 16, f"{i * step:g} s", "middle")


def _life_lines(report: Json, top: float, plot: Plot) -> Iterator[Markup]:
    for life in report["lives"][1:]:
        x = plot.x(life[0])
        title = tag("title", "courier was started again here")
        yield tag("line", title, class_="life", x1=x, x2=x, y1=top, y2=plot.bottom)


def _runs(points: Iterable[Point], plot: Plot) -> Iterator[list[Point]]:
    """The points, cut where there was no sample for a while."""
    run: list[Point] = []
    for point in points:
        if run and point[0] - run[-1][0] > plot.longest_gap_s:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def _polyline(points: Iterable[Point], plot: Plot, class_: str, title: str) -> Markup:
    path = " ".join(f"{plot.x(at):.1f},{plot.y(value):.1f}" for at, value in points)
    return tag("polyline", tag("title", title), class_=class_, points=path)


def _session_lines(samples: Sequence[Json], plot: Plot) -> Iterator[Markup]:
    lines: dict[str, list[Point]] = defaultdict(list)
    for sample in samples:
        for package, rate in sample["tps"].items():
            lines[package].append((sample["at_s"], rate))
    for package, points in lines.items():
        for run in _runs(points, plot):
            yield _polyline(run, plot, "session", package)


def _mean_line(samples: Sequence[Json], plot: Plot, floor: float) -> Iterator[Markup]:
    points = [
        (sample["at_s"], sample["mean_active_tps"])
        for sample in samples
        if sample["mean_active_tps"] is not None
    ]
    for run in _runs(points, plot):
        yield from (_shortfall(a, b, plot, floor) for a, b in pairwise(run) if a[1] < floor)
        yield _polyline(run, plot, "mean", "mean of the sessions")


def _shortfall(a: Point, b: Point, plot: Plot, floor: float) -> Markup:
    """The area between the floor and a mean under it."""
    width = plot.x(b[0]) - plot.x(a[0])
    y = plot.y(floor)
    height = plot.y(a[1]) - y
    return tag("rect", class_="shortfall", x=plot.x(a[0]), y=y, width=width, height=height)


def _agent_steps(samples: Sequence[Json], plot: Plot) -> Iterator[Markup]:
    points = [(sample["at_s"], sample["n_running"]) for sample in samples]
    for run in _runs(points, plot):
        stairs: list[Point] = []
        for at, n in run:
            if stairs:
                stairs.append((at, stairs[-1][1]))
            stairs.append((at, n))
        yield _polyline(stairs, plot, "agents", "agents at work")


def _bar(step: Json, plot: Plot, top: float, floor: float) -> Markup:
    asked, first, ended = (plot.x(step[k]) for k in ("asked_s", "first_token_s", "ended_s"))
    is_under = step["tps"] is not None and step["tps"] < floor
    rate = "" if step["tps"] is None else f", {step['tps']:.1f} tokens/s"
    wait_s = step["first_token_s"] - step["asked_s"]
    title = tag(
        "title",
        f"{step['package']}/{step['step']}: {step['n_generated']} tokens{rate}, "
        f"first after {wait_s:.2f} s, {step['n_cached']} of {step['n_prompt']} cached",
    )
    return tag(
        "g",
        title,
        tag("rect", class_="wait", x=asked, y=top + 4, width=max(first - asked, 0.3), height=12),
        tag(
            "rect",
            class_="decode under" if is_under else "decode",
            x=first,
            y=top + 2,
            width=max(ended - first - 0.8, 0.5),
            height=16,
        ),
    )


MARKED = {"retry": "retry", "saturated": "retry", "rest": "rest", "package failed": "fault"}


def _marks(events: Sequence[Json], package: str, plot: Plot, top: float) -> Iterator[Markup]:
    for event in events:
        if event["subject"] == package and event["name"] in MARKED:
            title = tag("title", f"{event['name']}: {event['detail']}")
            x, y = plot.x(event["at_s"]), top + ROW / 2
            class_ = f"mark {MARKED[event['name']]}"
            yield tag("circle", title, class_=class_, cx=x, cy=y, r=4)
