"""Line charts as one self-contained SVG, without any library."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 40
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df", "#bf8700", "#57606a")


@dataclass(frozen=True)
class Line:
    """Points (x, y) in the order of x; a y of None is a gap. `steps`: y holds until the next x."""

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    steps: bool = False


@dataclass(frozen=True)
class Chart:
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]


def ticks(top: float, count: int = 5) -> list[float]:
    """Round values from 0 up to about `top`."""
    if top <= 0:
        return [0.0]
    rough = top / count
    power = 10.0 ** (len(str(int(rough))) - 1) if rough >= 1 else 10.0 ** -len(f"{1 / rough:.0f}")
    step = next(f * power for f in (1, 2, 5, 10, 20, 50, 100) if f * power >= rough)
    return [i * step for i in range(int(top / step) + 1)]


def number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Plot:
    """One chart's place on the page and its scale."""

    def __init__(self, chart: Chart, offset: float) -> None:
        self.chart = chart
        self._offset = offset
        points = [p for line in chart.lines for p in line.points]
        self.x_top = max((x for x, _ in points), default=1) or 1
        self.y_top = (max((y for _, y in points if y is not None), default=1) or 1) * 1.05

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_top

    def y(self, value: float) -> float:
        return self._offset + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.y_top

    def path(self, line: Line) -> str:
        parts, pen = [], "M"
        for x, y in line.points:
            if y is None:
                pen = "M"
                continue
            if line.steps and pen == "L":
                parts.append(f"H{self.x(x):.1f}")
            parts.append(f"{pen}{self.x(x):.1f} {self.y(y):.1f}")
            pen = "L"
        return "".join(parts)

    def svg(self) -> str:
        chart, out = self.chart, []
        out.append(text(LEFT, self._offset + 18, chart.title, "start", "bold"))
        for value in ticks(self.y_top):
            y = self.y(value)
            out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#d8dee4"/>')
            out.append(text(LEFT - 6, y + 4, number(value), "end"))
        for value in ticks(self.x_top, 8):
            out.append(text(self.x(value), self._offset + HEIGHT - BOTTOM + 16, number(value)))
        out.append(text(WIDTH / 2, self._offset + HEIGHT - 8, chart.x_label))
        out.append(text(WIDTH - RIGHT, self._offset + 18, chart.y_label, "end"))
        right = LEFT + 8 * len(chart.title) + 24
        for i, line in enumerate(chart.lines):
            colour = COLOURS[i % len(COLOURS)]
            dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
            path = self.path(line)
            out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>')
            out.append(text(right, self._offset + 18, line.name, "start", colour=colour))
            right += 8 * len(line.name) + 20
        return "\n".join(out)


def text(
    x: float, y: float, words: str, anchor: str = "middle", weight: str = "normal", colour: str = "#24292f"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
        f' fill="{colour}">{html.escape(words)}</text>'
    )


def render(charts: Sequence[Chart]) -> str:
    """The charts one below the other."""
    height = HEIGHT * len(charts)
    plots = [Plot(chart, i * HEIGHT).svg() for i, chart in enumerate(charts)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n' + "\n".join(plots) + "\n</svg>\n"
    )
