"""Checks that the includes under src/ follow the arrows of ARCHITECTURE.md.

    python3 tools/check_includes.py [SRC]

Prints one line per violation and exits 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# The folders whose headers a folder may include, besides its own.
ARROWS = {
    "base": "",
    "kv": "base",
    "pool": "base kv meter",
    "session": "base kv pool meter",
    "meter": "base",
    "admission": "base meter",
    "metrics": "base",
    "events": "base",
    "engine": "base kv pool session meter admission metrics events",
    "llama": "base kv",
    "attention": "base",
    "hook": "base",
    "attention/ggml": "base attention hook",
    "matmul": "base hook",
    "api/protocol": "base kv pool session meter admission metrics events engine",
    "api": "base kv pool session meter admission metrics events engine api/protocol",
    "app": "base kv pool session meter admission metrics events engine llama matmul attention/ggml"
    " api/protocol api",
}
# Where llama.cpp's headers may be included, and those of its server among them.
LLAMA_FOLDERS = {"llama", "hook", "attention/ggml", "matmul", "api/protocol"}
SERVER_FOLDERS = {"api/protocol"}
# Where the time may be read. Elsewhere it is a parameter.
CLOCK_FOLDERS = {"base", "app"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LLAMA_HEADER = re.compile(
    r"^(llama|ggml|gguf|common|chat|sampling|speculative|arg|log|json|mtmd)\b.*\.h(pp)?$|^nlohmann/"
)
SERVER_HEADER = re.compile(r"^server-.*\.h$")
CLOCK_READ = re.compile(r"::now\(\)|\b(gettimeofday|clock_gettime|time)\((nullptr|NULL|0|&|CLOCK_)")


def folder_of(name: str) -> str:
    """The entry of ARROWS for a path relative to src/, or '' if it has none."""
    parts = name.split("/")[:-1]
    while parts and "/".join(parts) not in ARROWS:
        parts.pop()
    return "/".join(parts)


def check_file(src: Path, name: str) -> list[str]:
    folder = folder_of(name)
    if not folder:
        return [f"{name}: its folder is not in the table of tools/check_includes.py"]
    allowed = {folder, *ARROWS[folder].split()}
    problems = []
    for number, line in enumerate((src / name).read_text(encoding="utf-8").splitlines(), 1):
        where = f"{name}:{number}"
        if folder not in CLOCK_FOLDERS and CLOCK_READ.search(line.split("//")[0]):
            problems.append(f"{where}: reads the time; {folder} takes it as a parameter")
        include = INCLUDE.match(line)
        if not include:
            continue
        quoted, header = include[1] == '"', include[2]
        if (src / header).is_file():
            if folder_of(header) not in allowed:
                problems.append(f"{where}: {folder} must not include {header}")
        elif SERVER_HEADER.match(header):
            if folder not in SERVER_FOLDERS:
                problems.append(f"{where}: {folder} must not include llama.cpp's server ({header})")
        elif quoted or LLAMA_HEADER.match(header):
            if folder not in LLAMA_FOLDERS:
                problems.append(f"{where}: {folder} must not include llama.cpp ({header})")
    return problems


def check(src: Path) -> list[str]:
    names = sorted(p.relative_to(src).as_posix() for p in src.rglob("*") if p.suffix in (".h", ".cc"))
    if not names:
        return [f"{src}: no sources here"]
    return [problem for name in names for problem in check_file(src, name)]


def main() -> int:
    default = Path(__file__).resolve().parent.parent / "src"
    problems = check(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
