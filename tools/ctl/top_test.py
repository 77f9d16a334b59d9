"""The live view on a terminal: what it draws, that it ends, and that the screen is as before."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ctl.client import CtlError
from ctl.top import watch

TIMEOUT_S = 20.0
COLUMNS, ROWS = 40, 6
LINES = ["first", *(f"line {i} " + "." * 40 for i in range(9))]


class Terminal:
    """A process that shows the view on a terminal; the test is who looks at it and types."""

    def __init__(self, pid: int, screen: int) -> None:
        self._pid = pid
        self._screen = screen
        self._deadline = time.monotonic() + TIMEOUT_S
        self.shown = ""

    def read_until(self, text: str) -> None:
        while text not in self.shown:
            self.shown += self._read()

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def wait(self) -> int:
        try:
            while part := self._read():
                self.shown += part
        except OSError:  # the other side is closed
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def kill(self, number: int) -> None:
        os.kill(self._pid, number)

    def _read(self) -> str:
        assert time.monotonic() < self._deadline, f"it goes on and on: {self.shown[-300:]!r}"
        ready, _, _ = select.select([self._screen], [], [], TIMEOUT_S)
        assert ready, f"nothing more is shown after {self.shown[-300:]!r}"
        return os.read(self._screen, 4096).decode()


def fails_after(n_good: int) -> object:
    """A picture that can be had `n_good` times."""
    pictures = iter(range(n_good))

    def picture(columns: int | None) -> list[str]:
        if next(pictures, None) is None:
            raise CtlError("no server\x1b at home")
        return LINES

    return picture


@contextmanager
def terminal(n_good: int) -> Iterator[Terminal]:
    pid, screen = pty.fork()
    if pid == 0:
        status = 1
        try:
            sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.environ.pop("COLUMNS", None)
            os.environ.pop("LINES", None)
            watch(fails_after(n_good), 0.01)
            status = 0
        except SystemExit as end:
            status = end.code
        finally:
            sys.stdout.flush()
            os._exit(status)
    try:
        yield Terminal(pid, screen)
    finally:
        os.close(screen)  # hangs up, which ends the process


def test_q_ends_the_view_and_the_screen_is_as_before() -> None:
    with terminal(10**9) as view:
        view.read_until("more lines")
        view.type("q")
        assert view.wait() == 0
    assert view.shown.startswith("\x1b[?1049h\x1b[?25l\x1b[H")
    assert view.shown.endswith("\x1b[?25h\x1b[?1049l")
    first = view.shown.split("\x1b[H")[1].replace("\x1b[K", "").replace("\x1b[J", "")
    lines = first.split("\r\n")
    assert len(lines) == ROWS
    assert lines[1] == "line 0 " + "." * (COLUMNS - 8) + "…"
    assert "6 more lines" in lines[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_screen_as_before(number: int) -> None:
    with terminal(10**9) as view:
        view.read_until("more lines")
        view.kill(number)
        view.wait()
    assert view.shown.endswith("\x1b[?25h\x1b[?1049l")


def test_a_server_that_goes_away_is_shown_and_may_come_back() -> None:
    with terminal(3) as view:
        view.read_until("no server\\x1b at home")
        view.type("q")
        assert view.wait() == 0


def test_without_a_first_picture_there_is_no_view() -> None:
    with pytest.raises(CtlError):
        watch(fails_after(0), 0.01)
