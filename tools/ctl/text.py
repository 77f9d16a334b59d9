"""Text for a terminal: names of others made harmless, columns, widths, units."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

GAP = "  "


def safe(value: object) -> str:
    """The text without anything that a terminal would obey or hide: such characters are escaped."""
    return "".join(_harmless(character) for character in str(value))


def _harmless(character: str) -> str:
    category = unicodedata.category(character)
    if not category.startswith("C") and category not in ("Zl", "Zp"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def width(text: str) -> int:
    """Columns that the text takes on a terminal."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, columns: int | None) -> str:
    """The text in at most that many columns, with an ellipsis where it was cut; None: no limit."""
    if columns is None or width(text) <= columns:
        return text
    kept, used = "", 0
    for character in text:
        used += _columns(character)
        if used > columns - 1:
            break
        kept += character
    return kept + "…" if columns > 0 else ""


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None, least: int = 16
) -> list[str]:
    """Lines with aligned columns: the first and the last to the left, those between to the right.

    The first gives way when a line would be wider than `columns`, down to `least`; then the line
    is cut.
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(width(line[i]) for line in lines) for i in range(len(head))]
    if columns is not None:
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - columns
        widths[0] = max(min(widths[0], least), widths[0] - max(0, excess))
    return [_line(line, widths, columns) for line in lines]


def _line(cells: Sequence[str], widths: Sequence[int], columns: int | None) -> str:
    first = fit(cells[0], widths[0])
    parts = [first + " " * (widths[0] - width(first))]
    for cell, wide in zip(cells[1:-1], widths[1:-1]):
        parts.append(" " * (wide - width(cell)) + cell)
    parts.append(cells[-1])
    return fit(GAP.join(parts).rstrip(), columns)


def count(value: object) -> str:
    """A whole number with thousands; empty for null."""
    return f"{value:,}" if isinstance(value, int) else ""


def size(n_bytes: object) -> str:
    """Bytes in the largest unit that leaves at least 1; empty for null."""
    if not isinstance(n_bytes, (int, float)):
        return ""
    value, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def rate(tokens_per_second: object) -> str:
    """Empty for null: not decoding, or not known yet."""
    return f"{tokens_per_second:.1f} t/s" if isinstance(tokens_per_second, (int, float)) else ""


def duration(seconds: float) -> str:
    """Whole seconds, minutes or hours, whichever is the largest that leaves at least 1."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"
