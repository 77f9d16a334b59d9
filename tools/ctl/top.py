"""The live view: on a terminal a screen of its own, elsewhere one picture after another."""

from __future__ import annotations

import contextlib
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

from ctl.client import CtlError
from ctl.text import fit, safe

Picture = Callable[[int | None], list[str]]  # columns -> lines; raises CtlError

_ENTER = "\x1b[?1049h\x1b[?25l"  # the alternate screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(picture: Picture, interval_s: float) -> None:
    """Shows the picture until q or Ctrl-C. Raises CtlError if even the first cannot be had."""
    picture(None)
    if not sys.stdout.isatty():
        _repeat(picture, interval_s)
    with _screen(), _keys() as pressed:
        while True:
            size = shutil.get_terminal_size()
            _draw(_lines_or_error(picture, size.columns), size.columns, size.lines)
            if pressed(interval_s) in ("q", "Q"):
                return


def _repeat(picture: Picture, interval_s: float) -> None:
    while True:
        print("\n".join([*_lines_or_error(picture, None), ""]), flush=True)
        time.sleep(interval_s)


def _lines_or_error(picture: Picture, columns: int | None) -> list[str]:
    """A server that is gone may come back: the view says so and stays."""
    try:
        return picture(columns)
    except CtlError as error:
        return [safe(error)]


def _draw(lines: list[str], columns: int, rows: int) -> None:
    footer = f"{time.strftime('%H:%M:%S')}  q: quit"
    room = max(0, rows - 2)
    if len(lines) > room:
        footer += f"  {len(lines) - room} more lines"
    shown = [*(fit(line, columns) for line in lines[:room]), "", fit(footer, columns)]
    sys.stdout.write(_HOME + f"{_CLEAR_LINE}\n".join(shown[-rows:]) + _CLEAR_LINE + _CLEAR_REST)
    sys.stdout.flush()


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Gives a function that waits so many seconds for a key, and returns it or ''."""
    if not sys.stdin.isatty():
        yield lambda seconds: time.sleep(seconds) or ""
        return
    before = termios.tcgetattr(sys.stdin)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return sys.stdin.read(1) if ready else ""

    tty.setcbreak(sys.stdin)
    try:
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
