"""What the README shows can be run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opencoti_langgraph import ControlClient

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(from .*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=["quick start", "control"])
def test_the_code_of_the_readme_runs(
    client: ControlClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: str,
) -> None:
    monkeypatch.setenv("OPENCOTI_BASE_URL", client.base_url)
    exec(code.replace("http://127.0.0.1:8080", client.base_url), {})
    assert capsys.readouterr().out
