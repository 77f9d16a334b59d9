"""The include check passes the tree as it is and fails on each kind of bad line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent

GOOD = {
    "base/clock.h": "",
    "base/clock.cc": '#include "base/clock.h"\nauto t = std::chrono::steady_clock::now();\n',
    "meter/rate_window.h": '#include <vector>\n#include "base/clock.h"\n',
    "admission/policy.h": '#include "meter/rate_window.h"\n',
    "engine/engine.h": '#include "admission/policy.h"\n',
    "engine/steps/decode.cc": '#include "engine/engine.h"\nauto t = clock.now();  // not ::now()\n',
    "llama/backend.h": '#include "llama.h"\n',
    "api/protocol/protocol.cc": '#include "server-task.h"\n#include "common.h"\n',
    "api/routes.h": '#include "engine/engine.h"\n',
    "app/main.cc": '#include "llama/backend.h"\n#include "api/routes.h"\n',
}


def run(src: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, TOOLS / "check_includes.py", src], capture_output=True, text=True
    )
    return done.returncode, done.stdout


def plant(src: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (src / name).parent.mkdir(parents=True, exist_ok=True)
        (src / name).write_text(text)


def test_this_tree_passes() -> None:
    assert run(TOOLS.parent / "src") == (0, "")


def test_good_tree_passes(tmp_path: Path) -> None:
    plant(tmp_path, GOOD)
    assert run(tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("admission/bad.h", '#include "engine/engine.h"'),
        ("base/bad.h", '#include "meter/rate_window.h"'),
        ("engine/steps/bad.cc", '#include "api/routes.h"'),
        ("engine/bad.cc", '#include "llama/backend.h"'),
        ("engine/bad.cc", '#include "llama.h"'),
        ("engine/bad.cc", "#include <llama-cpp.h>"),
        ("pool/bad.cc", '  #  include "common.h"'),
        ("api/bad.cc", '#include "server-http.h"'),
        ("api/bad.cc", "#include <nlohmann/json.hpp>"),
        ("llama/bad.cc", '#include "server-common.h"'),
        ("app/bad.cc", '#include "llama.h"'),
        ("engine/bad.cc", "auto t = std::chrono::steady_clock::now();"),
        ("meter/bad_test.cc", "auto t = Clock::now();"),
        ("session/bad.cc", "time_t t = time(nullptr);"),
        ("unknown/bad.cc", ""),
    ],
)
def test_bad_line_fails(tmp_path: Path, name: str, line: str) -> None:
    plant(tmp_path, {**GOOD, name: f"// one\n{line}\n"})
    status, output = run(tmp_path)
    assert status == 1
    assert output.startswith(name)
    assert len(output.splitlines()) == 1


def test_empty_tree_fails(tmp_path: Path) -> None:
    assert run(tmp_path)[0] == 1
