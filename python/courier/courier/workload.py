"""What is to be done: the YAML file of a workload, read and checked as a whole."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Message = dict[str, str]
RESERVED = {"messages", "stream", "stream_options", "pool_id", "session_id", "session_end"}


class WorkloadError(Exception):
    """The file cannot be read, or says something that is not a workload."""


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Floor(Part):
    """The pool's admission policy; the fields are those of POST /polykv/pools/{id}/admission."""

    target_tps_per_session: float = Field(gt=0)
    mode: Literal["advisory", "enforced"] = "enforced"
    on_saturation: Literal["reject", "queue"] = "reject"
    guarantee_min_sessions: int = Field(default=1, ge=1)
    settle_tokens: int = Field(default=48, ge=1)
    settle_max_ms: int = Field(default=5000, ge=1)


class Document(Part):
    """A text that all agents share: a file beside the workload, or the text itself."""

    path: str | None = None
    text: str | None = None
    title: str | None = None
    max_chars: int | None = Field(default=None, ge=1)  # cut after the last whole line

    @model_validator(mode="after")
    def _has_one_source(self) -> Document:
        if (self.path is None) == (self.text is None):
            raise ValueError("a document has either a path or a text")
        return self

    def read(self, folder: Path) -> Document:
        """The same document with its text in it. Raises OSError, UnicodeDecodeError."""
        if self.path is None:
            return self
        text = (folder / self.path).read_text(encoding="utf-8")
        if self.max_chars is not None and len(text) > self.max_chars:
            end = text.rfind("\n", 0, self.max_chars) + 1
            text = text[: end or self.max_chars]
        return Document(text=text, title=self.title or Path(self.path).name)


class SharedPrefix(Part):
    """What all agents begin with: it becomes the pool."""

    name: str | None = None
    system: str
    documents: tuple[Document, ...] = ()

    def messages(self) -> list[Message]:
        parts = [self.system.rstrip()]
        for document in self.documents:
            heading = f"=== {document.title} ===\n" if document.title else ""
            parts.append(f"{heading}{(document.text or '').rstrip()}")
        return [{"role": "system", "content": "\n\n".join(parts)}]


# A package's id is in its session's id, which has at most 256 bytes.
Id = Annotated[str, Field(pattern=r"^[\w.-]{1,50}$")]


class Step(Part):
    """One turn of an agent. `$name` in the prompt is a variable of the package."""

    id: Id
    prompt: str
    request: dict[str, Any] = {}


class Package(Part):
    """What one agent does, step by step, in one conversation."""

    id: Id
    vars: dict[str, str] = {}
    steps: tuple[Step, ...] = ()  # empty: the workload's


class Workload(Part):
    name: str = Field(min_length=1, max_length=100)
    floor: Floor
    max_agents: int = Field(default=16, ge=1)
    request: dict[str, Any] = {}  # fields of every completion request
    pool: SharedPrefix
    steps: tuple[Step, ...] = ()
    packages: tuple[Package, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_whole(self) -> Workload:
        _check_unique([package.id for package in self.packages], "package")
        for package in self.packages:
            steps = self.steps_of(package)
            if not steps:
                raise ValueError(f"package {package.id!r} has no steps")
            _check_unique([step.id for step in steps], f"step of package {package.id!r}")
            for step in steps:
                _check_request(step.request, f"step {step.id!r}")
                self.prompt(package, step)
        _check_request(self.request, "the workload")
        return self

    def steps_of(self, package: Package) -> tuple[Step, ...]:
        return package.steps or self.steps

    def prompt(self, package: Package, step: Step) -> str:
        """Raises ValueError if the package lacks a variable."""
        try:
            return Template(step.prompt).substitute(package.vars)
        except KeyError as missing:
            raise ValueError(f"package {package.id!r} lacks the variable {missing}") from None

    def with_floor(self, tps: float) -> Workload:
        floor = self.floor.model_copy(update={"target_tps_per_session": tps})
        return self.model_copy(update={"floor": floor})

    def digest(self) -> str:
        """Equal for workloads that ask for the same, documents included."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


def _check_unique(ids: list[str], what: str) -> None:
    for name, n in Counter(ids).items():
        if n > 1:
            raise ValueError(f"{what} {name!r} is there {n} times")


def _check_request(fields: dict[str, Any], where: str) -> None:
    if taken := RESERVED & fields.keys():
        raise ValueError(f"{where}: request must not say {', '.join(sorted(taken))}")


def load(path: Path) -> Workload:
    """The workload of the file, with the text of its documents. Raises WorkloadError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        workload = Workload.model_validate(content)
        documents = tuple(document.read(path.parent) for document in workload.pool.documents)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise WorkloadError(f"{path}: {error}") from error
    except ValidationError as error:
        raise WorkloadError(f"{path}: {_explain(error)}") from error
    pool = workload.pool.model_copy(update={"documents": documents})
    return workload.model_copy(update={"pool": pool})


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{place}: {problem['msg']}" if place else problem["msg"])
    return "; ".join(lines)
