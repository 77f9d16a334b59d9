"""A live progress bar in a terminal; plain lines now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

BAR_WIDTH = 30
TERMINAL_INTERVAL_S = 0.2
PLAIN_INTERVAL_S = 10.0


class Progress:
    """Counts steps up to `total`. `advance()` may be called from any thread.

    As a context manager it repaints from a thread of its own, so that the clock runs while nothing
    advances, and leaves the last state on a line of its own.
    """

    def __init__(
        self, label: str, total: int, out: TextIO = sys.stdout, unit: str = "tokens"
    ) -> None:
        self._label = label
        self._unit = unit
        self._total = total
        self._out = out
        self._terminal = out.isatty()
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._done = 0
        self._stop = threading.Event()
        self._painter = threading.Thread(target=self._paint_until_stopped, daemon=True)

    def __enter__(self) -> Progress:
        self._painter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._painter.join()
        self._paint()
        if self._terminal:
            self._out.write("\n")
        self._out.flush()

    def advance(self, steps: int = 1) -> None:
        with self._lock:
            self._done = min(self._done + steps, self._total)

    def reach(self, done: int) -> None:
        with self._lock:
            self._done = min(done, self._total)

    def _paint_until_stopped(self) -> None:
        interval = TERMINAL_INTERVAL_S if self._terminal else PLAIN_INTERVAL_S
        while not self._stop.wait(interval):
            self._paint()

    def _paint(self) -> None:
        with self._lock:
            done = self._done
        line = f"{self._bar(done)} {done}/{self._total} {self._unit} {self._elapsed():5.1f} s"
        self._out.write(f"\r{self._label} {line}" if self._terminal else f"{self._label} {line}\n")
        self._out.flush()

    def _bar(self, done: int) -> str:
        filled = BAR_WIDTH * done // self._total
        return "[" + "#" * filled + "." * (BAR_WIDTH - filled) + "]"

    def _elapsed(self) -> float:
        return time.monotonic() - self._started
