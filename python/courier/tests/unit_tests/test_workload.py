from __future__ import annotations

from pathlib import Path

import pytest

from courier.workload import WorkloadError, load

PROJECT = Path(__file__).resolve().parents[2]
GOOD = """
name: small
floor: {target_tps_per_session: 10}
pool:
  system: Be brief.
  documents: [{path: text.md, max_chars: 12}, {text: inline, title: note}]
steps: [{id: ask, prompt: "About $topic?"}]
packages: [{id: a, vars: {topic: cats}}, {id: b, steps: [{id: own, prompt: Hello.}]}]
"""


def write(folder: Path, text: str = GOOD) -> Path:
    (folder / "text.md").write_text("first line\nsecond line\n")
    path = folder / "w.yaml"
    path.write_text(text)
    return path


def test_a_workload_is_read_with_its_documents(tmp_path: Path) -> None:
    workload = load(write(tmp_path))
    assert workload.pool.messages() == [
        {
            "role": "system",
            "content": "Be brief.\n\n=== text.md ===\nfirst line\n\n=== note ===\ninline",
        }
    ]
    first, second = workload.packages
    assert workload.prompt(first, workload.steps_of(first)[0]) == "About cats?"
    assert [step.id for step in workload.steps_of(second)] == ["own"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: small", "name: small\nfloors: 3", "floors: Extra inputs"),
        ("target_tps_per_session: 10", "target_tps_per_session: 0", "greater than 0"),
        ("$topic", "$subject", "'a' lacks the variable 'subject'"),
        ("{id: a, ", "{id: b, ", "package 'b' is there 2 times"),
        ("{id: a, ", "{id: 'a/b', ", "packages.0.id"),
        ("prompt: Hello.}", "prompt: Hello., request: {stream: false}}", "must not say stream"),
        ("path: text.md", "path: nowhere.md", "nowhere.md"),
        ("path: text.md", "title: empty", "either a path or a text"),
        ("name: small", "name: [", "w.yaml"),
        ("steps: [{id: ask", "request: {}\nstep: [{id: ask", "package 'a' has no steps"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    if "no steps" in message:
        path.write_text(GOOD.replace('steps: [{id: ask, prompt: "About $topic?"}]', ""))
    with pytest.raises(WorkloadError) as caught:
        load(path)
    assert message in str(caught.value)


def test_the_digest_tells_workloads_apart_by_what_they_ask(tmp_path: Path) -> None:
    path = write(tmp_path)
    digest = load(path).digest()
    assert load(path).digest() == digest
    assert load(path).with_floor(11).digest() != digest
    (tmp_path / "text.md").write_text("other\n")
    assert load(path).digest() != digest


def test_the_workload_that_ships_is_whole() -> None:
    workload = load(PROJECT / "workloads" / "project-review.yaml")
    assert sum(len(workload.steps_of(package)) for package in workload.packages) >= 40
    assert "PolyKV" in workload.pool.messages()[0]["content"]
