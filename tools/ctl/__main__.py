import signal
import sys

from ctl.commands import run

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without leaving the screen
sys.exit(run())
