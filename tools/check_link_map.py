"""Checks what of llama.cpp's server is in polykv-server: its protocol, not its engine.

    python3 tools/check_link_map.py MAP

Prints one line per violation and exits 1 if there is any.
"""

from __future__ import annotations

import sys
from pathlib import Path

LINKED = ("server-task.cpp.o", "server-schema.cpp.o")
NOT_LINKED = ("server-context.cpp.o", "server-models.cpp.o")


def check(text: str) -> list[str]:
    problems = [f"{name} is not linked" for name in LINKED if f"({name})" not in text]
    problems += [f"{name} is linked" for name in NOT_LINKED if f"({name})" in text]
    return problems


def main() -> int:
    problems = check(Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace"))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
