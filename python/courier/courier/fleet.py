"""The run itself: starts agents when the gate says so, and brings every package to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol, cast

from opencoti_langgraph.control import (
    Capacity,
    ControlClient,
    OpencotiError,
    PolicyOptions,
    PoolCreated,
    PoolNotFoundError,
    PoolOptions,
    Tps,
)

from courier import watch
from courier.agent import Agent, Answer, Job
from courier.chat import is_refusal, is_saturation
from courier.gate import WARMING, Crew, Decision, FloorGate, Gate, Move, OpenGate
from courier.history import History
from courier.journal import Journal, Record
from courier.workload import Workload

TICK_S = 0.25
MOST_FAILURES = 10  # in a row, of one step; waiting for room is none
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0

Json = dict[str, Any]


class RunAborted(Exception):
    """The server has not answered for longer than the run has patience."""


@dataclass(frozen=True)
class Tick:
    """What the server said at one moment."""

    capacity: Capacity
    rates: Tps
    decision: Decision


class Audience(Protocol):
    """Who follows the run, on a terminal for example. Called on the run's own thread."""

    def step_finished(self, answer: Answer) -> None: ...
    def event(self, record: Record) -> None: ...
    def tick(self, fleet: Fleet) -> None: ...


def backoff_s(n_failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(FIRST_DELAY_S * 2.0 ** max(0, n_failures - 1), LONGEST_DELAY_S)


class Fleet:
    """One life of a run: from the start of the process to its end."""

    def __init__(
        self,
        workload: Workload,
        client: ControlClient,
        journal: Journal,
        audience: Audience,
        patience_s: float,
    ) -> None:
        """The journal begins with the run's record."""
        history = History(journal.records)
        self.mode: str = history.head["mode"]
        self.workload = workload
        self.jobs = [
            Job(package, workload.steps_of(package), history.answers(package.id))
            for package in workload.packages
        ]
        self.queue = [job for job in self.jobs if not job.is_done]
        self.queue.sort(key=lambda job: not job.answers)  # begun ones first
        self.failed: list[Job] = []
        self.agents: dict[asyncio.Task[None], Agent] = {}
        self.last_tick: Tick | None = None
        self._run_id: str = history.head["run_id"]
        self._client = client
        self._journal = journal
        self._audience = audience
        self._patience_s = patience_s
        self._gate: Gate = OpenGate() if self.mode == "naive" else FloorGate(workload.floor)
        self._pool_id: int | None = None
        self._pool_ids: set[int] = set()  # all that this life has had
        self._boot_id = 0
        self._heard_at = time.monotonic()
        self._lost = False
        self._held_because = ""

    @property
    def is_lost(self) -> bool:
        """Whether the server does not answer at the moment."""
        return self._lost

    async def run(self) -> bool:
        """Whether every step is finished.

        Raises RunAborted, and OpencotiError when the pool is refused, or when a run that has never
        met its server does not find it.
        """
        if not any(record["kind"] == "pool" for record in self._journal.records):
            await self._client.aprops()
        follower = asyncio.create_task(self._follow())
        try:
            while self.queue or self.agents:
                await self._turn()
                await self._pause()
                self._reap()
                self._audience.tick(self)
        finally:
            await self._dismiss(follower)
        await self._release_pools()
        return not self.failed

    def session_id(self, job: Job) -> str:
        return f"{self._run_id}/{job.package.id}"

    # One tick.

    async def _turn(self) -> None:
        try:
            pool_id = await self._open_pool() if self._pool_id is None else self._pool_id
            capacity, rates = await asyncio.gather(
                self._client.acapacity(pool_id), self._client.atps()
            )
        except PoolNotFoundError as error:
            self._hear()
            self._lose_pool(error)
        except OpencotiError as error:
            if is_refusal(error):
                raise
            self._lose_server(error)
        else:
            self._hear()
            self._steer(capacity, rates)

    async def _pause(self) -> None:
        pause = asyncio.create_task(asyncio.sleep(TICK_S))
        await asyncio.wait([pause, *self.agents], return_when=asyncio.FIRST_COMPLETED)
        pause.cancel()

    def _steer(self, capacity: Capacity, rates: Tps) -> None:
        self._reap()
        decision = self._decide(capacity)
        self.last_tick = Tick(capacity, rates, decision)
        self._note_sample(capacity, rates)
        while decision.move is Move.SPAWN and (job := self._next_job()) is not None:
            self._spawn(job, decision.reason)
            decision = self._decide(capacity)
        if decision.move is Move.REST:
            self._send_to_rest(decision.reason)
        elif self.queue:
            self._note_hold(decision.reason)

    def _decide(self, capacity: Capacity) -> Decision:
        starting = sum(not agent.has_begun for agent in self.agents.values())
        crew = Crew(len(self.agents), self.workload.max_agents, starting)
        return self._gate.decide(capacity, crew, time.monotonic())

    def _next_job(self) -> Job | None:
        now = time.monotonic()
        job = next((job for job in self.queue if job.not_before <= now), None)
        if job is not None:
            self.queue.remove(job)
        return job

    # Agents.

    def _spawn(self, job: Job, reason: str) -> None:
        assert self._pool_id is not None
        agent = Agent(
            job, self.workload, self._client, self._pool_id, self.session_id(job), self._finish_step
        )
        self.agents[asyncio.create_task(agent.work())] = agent
        name = "guaranteed" if reason == "guaranteed minimum" else "spawn"
        self._held_because = ""
        self._event(name, job.package.id, f"{job.queued_because}: {reason}")

    def _finish_step(self, answer: Answer) -> None:
        self._journal.append({"kind": "step", "at": time.time(), **asdict(answer)}, durable=True)
        self._audience.step_finished(answer)

    def _send_to_rest(self, reason: str) -> None:
        """The agent that started last goes on resting after the step that it is at."""
        agents = list(self.agents.values())
        if any(agent.should_rest for agent in agents):
            return
        agents[-1].should_rest = True
        self._event("rest", agents[-1].job.package.id, reason)

    def _reap(self) -> None:
        for task in [task for task in self.agents if task.done()]:
            agent = self.agents.pop(task)
            error = task.exception()
            if error is None:
                self._take_back(agent.job)
            elif isinstance(error, OpencotiError):
                self._judge(agent, error)
            else:
                raise error

    def _take_back(self, job: Job) -> None:
        if job.is_done:
            self._event("package done", job.package.id, f"{len(job.steps)} steps")
        else:
            self._requeue(job, "rested", 0.0)

    def _judge(self, agent: Agent, error: OpencotiError) -> None:
        job = agent.job
        step = job.steps[len(job.answers)].id
        if is_saturation(error):
            delay_s = FIRST_DELAY_S if error.retry_after is None else error.retry_after
            self._event("saturated", job.package.id, f"{step}: {error}; again in {delay_s:.1f} s")
            self._requeue(job, "after saturation", delay_s)
            return
        if isinstance(error, PoolNotFoundError):
            self._event("retry", job.package.id, f"{step}: {error}")
            self._requeue(job, "pool was gone", 0.0)
            return
        job.n_failures += 1
        if is_refusal(error) or job.n_failures >= MOST_FAILURES:
            self.failed.append(job)
            self._event("package failed", job.package.id, f"{step}: {error}")
            return
        delay_s = max(backoff_s(job.n_failures), error.retry_after or 0.0)
        self._event("retry", job.package.id, f"{step}: {error}; again in {delay_s:.1f} s")
        self._requeue(job, "retry", delay_s)

    def _requeue(self, job: Job, because: str, delay_s: float) -> None:
        job.queued_because = because
        job.not_before = time.monotonic() + delay_s
        self.queue.insert(0, job)

    async def _dismiss(self, follower: asyncio.Task[None]) -> None:
        """Ends what is under way when the run is left; its steps will be asked again."""
        for task in (follower, *self.agents):
            task.cancel()
        await asyncio.gather(follower, *self.agents, return_exceptions=True)

    # The server.

    async def _open_pool(self) -> int:
        properties = await self._client.aprops()
        shared = self.workload.pool
        options: PoolOptions = {"messages": shared.messages()}
        if shared.name is not None:
            options["name"] = shared.name
        pool = await self._client.acreate_pool(**options)
        self._boot_id, pool_id = pool["boot_id"], pool["pool_id"]
        self._journal.append(
            {
                "kind": "pool",
                "at": time.time(),
                "url": self._client.base_url,
                "model": properties.get("model_alias") or properties.get("model_path", ""),
                "total_slots": properties.get("total_slots"),
                **_picked(pool, POOL_FIELDS),
            },
            durable=True,
        )
        floor = self.workload.floor
        if self.mode == "naive":  # the floor is measured, and nobody keeps it
            floor = floor.model_copy(update={"mode": "advisory"})
        policy = cast(PolicyOptions, floor.model_dump())
        await self._client.aset_admission(pool_id, **policy)
        self._pool_id = pool_id
        self._pool_ids.add(pool_id)
        self._event("pool", str(shared.name or pool_id), _pool_line(pool))
        return pool_id

    async def _release_pools(self) -> None:
        """Gives back what this run holds on the server, as far as that can be done."""
        for pool_id, n in History(self._journal.records).references(self._boot_id).items():
            for _ in range(n):
                with suppress(OpencotiError):
                    await self._client.arelease_pool(pool_id)
                self._journal.append(
                    {
                        "kind": "released",
                        "at": time.time(),
                        "boot_id": self._boot_id,
                        "pool_id": pool_id,
                    }
                )

    def _lose_pool(self, error: OpencotiError) -> None:
        self._pool_id = None
        self._event("pool lost", "", str(error))

    def _lose_server(self, error: OpencotiError) -> None:
        if not self._lost:
            self._lost = True
            self._event("server lost", "", str(error))
        if time.monotonic() - self._heard_at > self._patience_s:
            raise RunAborted(f"no answer for {self._patience_s:.0f} s: {error}")

    def _hear(self) -> None:
        self._heard_at = time.monotonic()
        if self._lost:
            self._lost = False
            self._event("server back", "", "")

    # Records.

    async def _follow(self) -> None:
        async for name, subject, detail in watch.rows(self._client, self._run_id, self._pool_ids):
            self._event(name, subject, detail, source="server")

    def _note_hold(self, reason: str) -> None:
        if reason not in (self._held_because, WARMING):
            self._held_because = reason
            self._event("hold", "", reason)

    def _note_sample(self, capacity: Capacity, rates: Tps) -> None:
        prefix = f"{self._run_id}/"
        tps = {
            session["session_id"].removeprefix(prefix): round(session["tps_ewma"], 2)
            for session in rates["sessions"]
            if session["session_id"].startswith(prefix) and session["tps_ewma"] is not None
        }
        self._journal.append(
            {
                "kind": "sample",
                "at": time.time(),
                "aggregate_tps": rates["aggregate_tps"],
                "n_running": len(self.agents),
                "n_queued": len(self.queue),
                "tps": tps,
                **_picked(capacity, SAMPLED),
            }
        )

    def _event(self, name: str, subject: str, detail: str, source: str = "courier") -> None:
        record = {
            "kind": "event",
            "at": time.time(),
            "source": source,
            "name": name,
            "subject": subject,
            "detail": detail,
        }
        self._journal.append(record)
        self._audience.event(record)


POOL_FIELDS = ("boot_id", "pool_id", "name", "prefix_len", "created", "n_prefilled", "prefill_ms")
SAMPLED = (
    "mean_active_tps",
    "settling",
    "n_warming",
    "can_admit",
    "reason",
    "projected_mean_tps_if_admitted",
    "kv_headroom_pct",
)


def _picked(answer: Mapping[str, Any], names: Sequence[str]) -> Json:
    return {name: answer.get(name) for name in names}


def _pool_line(pool: PoolCreated) -> str:
    computed = f"{pool['n_prefilled']} computed in {pool['prefill_ms'] / 1000:.1f} s"
    return f"{pool['prefix_len']} tokens, {computed if pool['created'] else 'was there already'}"
