"""The checks of ./polykv check: format, clang-tidy, include directions, link map, ruff, mypy.

    python tools/check.py --build BUILD_FOLDER --cache FOLDER --package-python PYTHON [--fix]

Runs in an environment with the packages of tools/requirements-check.txt; PYTHON is that of one with
those of python/requirements.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def run(command: list[str | Path], folder: Path = ROOT) -> str:
    """The output of a command that failed, or ''."""
    done = subprocess.run(
        command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return (done.stdout or f"{command[0]} failed") if done.returncode else ""


def check_format(fix: bool) -> str:
    files = [p for folder in ("src", "tests", "bench") for p in sorted((ROOT / folder).rglob("*"))]
    sources = [p for p in files if p.suffix in (".h", ".cc")]
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]
    return run([BIN / "clang-format", *mode, *sources])


def digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def read_headers() -> bytes:
    """All that clang-tidy reads beside a source: our headers, its settings, its version."""
    files = [ROOT / ".clang-tidy", ROOT / "tools/requirements-check.txt"]
    for folder in ("src", "tests", "bench"):
        files += sorted((ROOT / folder).rglob("*.h"))
    return b"".join(str(p.relative_to(ROOT)).encode() + p.read_bytes() for p in files)


def check_tidy(build: Path, cache: Path) -> str:
    """clang-tidy on every source of ours that the build compiles.

    A source that had no finding is remembered in `cache` by all that clang-tidy read.
    """
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    arguments = {entry["file"]: entry["command"].replace(str(ROOT), "") for entry in commands}
    sources = sorted(arguments)
    headers = read_headers()
    cache.mkdir(parents=True, exist_ok=True)
    started = shown = time.monotonic()
    output = []

    def tidy(source: str) -> str:
        clean = cache / digest(arguments[source].encode(), Path(source).read_bytes(), headers)
        if clean.exists():
            return ""
        found = run([BIN / "clang-tidy", "--quiet", "-p", build, source])
        if not found:
            clean.touch()
        return found

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, result in enumerate(pool.map(tidy, sources), 1):
            output.append(result)
            if time.monotonic() - shown > (0.5 if sys.stderr.isatty() else 30):
                shown = time.monotonic()
                end = "\r" if sys.stderr.isatty() else "\n"
                elapsed = f"{shown - started:.0f} s"
                print(f"tidy [{done}/{len(sources)}] {elapsed}", end=end, file=sys.stderr, flush=True)
    return "".join(output)


def check_ruff(python: Path, fix: bool) -> str:
    ruff = [python, "-m", "ruff"]
    mode = [] if fix else ["--check"]
    cache = "--no-cache"
    return run([*ruff, "format", cache, *mode, "python"]) + run([*ruff, "check", cache, "python"])


def check_mypy(python: Path, cache: Path) -> str:
    """mypy on every package, by the rules of its own pyproject.toml."""
    packages = sorted(path.parent for path in ROOT.glob("python/*/pyproject.toml"))
    return "".join(run([python, "-m", "mypy", "--cache-dir", cache, "."], p) for p in packages)


def main() -> int:
    parser = argparse.ArgumentParser(description="the checks of ./polykv check")
    parser.add_argument("--build", type=Path, required=True, help="build folder of the server")
    parser.add_argument("--cache", type=Path, required=True, help="where clean sources are noted")
    parser.add_argument("--package-python", type=Path, required=True, help="for ruff and mypy")
    parser.add_argument("--fix", action="store_true", help="format the sources instead of checking")
    options = parser.parse_args()
    checks = {
        "format": lambda: check_format(options.fix),
        "includes": lambda: run([sys.executable, "tools/check_includes.py"]),
        "link map": lambda: run(
            [sys.executable, "tools/check_link_map.py", options.build / "polykv-server.map"]
        ),
        "ruff": lambda: check_ruff(options.package_python, options.fix),
        "mypy": lambda: check_mypy(options.package_python, options.cache / "mypy"),
        "tidy": lambda: check_tidy(options.build, options.cache),
    }
    failed = 0
    for name, check in checks.items():
        output = check()
        failed += bool(output)
        print(f"{output}{name}: {'failed' if output else 'passed'}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
