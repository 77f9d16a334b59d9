"""Plain-text tables and the few figures that results are summed up with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def geometric_mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(values)


def percentile(values: Iterable[float], share: float) -> float:
    """The value that `share` of the values (0 to 1) do not exceed; by nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with the first column flush left and the others flush right; floats get 2 decimals."""
    cells = [list(header)] + [[_cell(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(_pad(text, i, widths[i]) for i, text in enumerate(row)) for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _pad(text: str, column: int, width: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)
