"""One sub-agent: takes a package through its steps, in one conversation and one session."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from opencoti_langgraph.control import ControlClient, OpencotiError

from courier import chat
from courier.workload import Message, Package, Step, Workload

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """A finished step. Times are Unix seconds; token counts are the server's."""

    package: str
    step: str
    text: str
    asked_at: float
    first_token_at: float
    ended_at: float
    n_prompt: int
    n_cached: int
    n_generated: int
    finish_reason: str
    session_tps: float | None  # as the server saw it at the end


@dataclass
class Job:
    """A package and how far it is. Waiting in a queue, or with one agent."""

    package: Package
    steps: tuple[Step, ...]
    answers: list[str] = field(default_factory=list)
    n_failures: int = 0  # in a row, of the next step
    not_before: float = 0.0  # monotonic seconds
    queued_because: str = "new"

    @property
    def is_done(self) -> bool:
        return len(self.answers) == len(self.steps)


class Agent:
    """Works on a job until it is done, or asked to rest at the end of a step."""

    def __init__(
        self,
        job: Job,
        workload: Workload,
        client: ControlClient,
        pool_id: int,
        session_id: str,
        on_answer: Callable[[Answer], None],
    ) -> None:
        """`on_answer` makes a step's answer last; the step is finished once it returns."""
        self.job = job
        self.session_id = session_id
        self._pool_id = pool_id
        self.has_begun = False  # the first token is there
        self.should_rest = False
        self.n_tokens = 0  # of the step under way
        self._workload = workload
        self._client = client
        self._on_answer = on_answer

    async def work(self) -> None:
        """Returns when the job is done or the agent rests. Raises OpencotiError."""
        while not self.job.is_done and not self.should_rest:
            answer = await self._ask(self.job.steps[len(self.job.answers)])
            self._on_answer(answer)
            self.job.answers.append(answer.text)
            self.job.n_failures = 0

    def _messages(self) -> list[Message]:
        job = self.job
        messages = self._workload.pool.messages()
        for i, step in enumerate(job.steps[: len(job.answers) + 1]):
            prompt = self._workload.prompt(job.package, step)
            messages.append({"role": "user", "content": prompt})
            if i < len(job.answers):
                messages.append({"role": "assistant", "content": job.answers[i]})
        return messages

    def _body(self, step: Step) -> Json:
        is_last = len(self.job.answers) + 1 == len(self.job.steps)
        return {
            **self._workload.request,
            **step.request,
            "messages": self._messages(),
            "stream": True,
            "stream_options": {"include_usage": True},
            "pool_id": self._pool_id,
            "session_id": self.session_id,
            "session_end": is_last,
            "on_pool_miss": "error",
        }

    async def _ask(self, step: Step) -> Answer:
        self.n_tokens = 0
        asked_at = time.time()
        first_token_at = 0.0
        text = finish_reason = ""
        usage: Json = {}
        block: Json = {}
        async with aclosing(chat.chunks(self._client, self._body(step))) as chunks:
            async for chunk in chunks:
                usage = chunk.get("usage") or usage
                block = chunk.get("opencoti") or block
                for choice in chunk.get("choices") or []:
                    finish_reason = choice.get("finish_reason") or finish_reason
                    if piece := choice.get("delta", {}).get("content"):
                        text += piece
                        self.n_tokens += 1
                        first_token_at = first_token_at or time.time()
                        self.has_begun = True
        if block.get("stop_reason") == "kv_exhausted":
            raise OpencotiError("the answer was cut short: no KV cells were left")
        self.has_begun = True
        ended_at = time.time()
        return Answer(
            package=self.job.package.id,
            step=step.id,
            text=text,
            asked_at=asked_at,
            first_token_at=first_token_at or ended_at,
            ended_at=ended_at,
            n_prompt=usage.get("prompt_tokens", 0),
            n_cached=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
            n_generated=usage.get("completion_tokens", 0),
            finish_reason=finish_reason,
            session_tps=block.get("session_tps"),
        )
