from ctl.commands import run

raise SystemExit(run())
