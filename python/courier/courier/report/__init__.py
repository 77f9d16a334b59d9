"""The report of a run: one HTML file that needs nothing else, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from courier.history import History
from courier.journal import Record
from courier.report.figures import figures
from courier.report.page import page

HTML_FILE, JSON_FILE = "report.html", "report.json"


def write(records: Iterable[Record], folder: Path) -> Path:
    """Writes both files, each whole or not at all; returns the HTML file. Raises HistoryError."""
    report = figures(History(records))
    _replace(folder / JSON_FILE, json.dumps(report, ensure_ascii=False, indent=1))
    _replace(folder / HTML_FILE, page(report))
    return folder / HTML_FILE


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(path.suffix + ".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
