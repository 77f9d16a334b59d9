"""What travels: the options that requests take and the objects that the server answers with.

Answers may hold more fields than are named here; a field that is not always there is NotRequired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

PoolRef = int | str
"""A pool's number or its name."""


class PoolOptions(TypedDict, total=False):
    """Options of create_pool. Exactly one of the first four says what the prefix is."""

    messages: Sequence[Any]
    """Chat messages, LangChain's or OpenAI's; the prefix of every chat that begins with them."""
    prompt: str
    tokens: Sequence[int]
    from_session: str
    """What this session has said and heard so far; nothing is computed."""
    tools: Sequence[Any]
    """With messages: the tools that the chats will have. LangChain's or OpenAI's."""
    chat_template_kwargs: dict[str, Any]
    name: str
    pin: bool
    unique: bool
    """A pool of its own, even if one with equal tokens is there."""
    wait: bool
    """False: return at once; the server goes on to compute the prefix."""


class ForkOptions(PoolOptions, total=False):
    """Options of fork_pool: the child's whole prefix, or what follows the parent's."""

    append_messages: Sequence[Any]
    append_prompt: str
    append_tokens: Sequence[int]
    branch_pos: int
    """How many of the parent's tokens are kept. Missing: all before what is appended, else as many
    as agree."""


class PolicyOptions(TypedDict, total=False):
    """The floor that a pool keeps for its sessions."""

    target_tps_per_session: float
    mode: Literal["advisory", "enforced"]
    on_saturation: Literal["reject", "warn", "queue"]
    guarantee_min_sessions: int
    settle_tokens: int
    settle_max_ms: int
    max_queue: int | None
    queue_timeout_ms: int
    max_tokens_per_request: int | None


class Policy(PolicyOptions):
    """A pool's own policy; none of the options is there if it has none."""

    pool_id: int


class PoolCreated(TypedDict):
    pool_id: int
    boot_id: int
    name: str | None
    parent: int
    """-1 at a root."""
    branch_pos: int
    shared_len: int
    prefix_len: int
    prefix_hash: str
    own_kv_bytes: int
    created: bool
    """False: a pool with equal tokens was there and has one more reference now."""
    residency: str
    n_prefilled: int
    prefill_ms: float
    template_break: NotRequired[int]
    """The template ends the common part here, before the messages do."""


class PoolSession(TypedDict):
    session_id: str
    slot_id: int | None
    suffix_n_tokens: int
    marginal_kv_bytes: int
    tps_ewma: float | None
    ttft_ms: float | None
    state: str


class Pool(TypedDict):
    pool_id: int
    name: str | None
    parent: int
    branch_pos: int
    shared_len: int
    prefix_len: int
    prefix_hash: str
    own_len: int
    own_kv_bytes: int
    subtree_kv_bytes: int
    dedup_bytes: int
    residency: Literal["materializing", "resident", "evicted", "failed"]
    n_prefilled: int
    refs: int
    pinned: bool
    auto_pinned: bool
    orphaned_pin: bool
    last_access_ts: int
    hits: int
    queries: int
    children: list[int]
    sessions: list[PoolSession]
    admission: PolicyOptions | None


class PoolTree(TypedDict):
    boot_id: int
    tree_depth: int
    seq_ids_used: int
    seq_ids_max: int
    kv_cells_used: int
    kv_cells_total: int
    kv_span: int | None
    bytes_per_cell: int
    pools: list[Pool]
    """Parents before their children."""


class PoolSubtree(Pool, PoolTree):
    """A pool, and under `pools` its subtree, the pool first."""


class PoolStatus(TypedDict):
    """How a pool is after a change."""

    pool_id: int
    refs: int
    pinned: bool
    n_evicted: int
    released: bool
    release_in_ms: NotRequired[int]


class Capacity(TypedDict):
    """Would one more session be admitted, and why not. What nobody can say is None."""

    can_admit: bool
    reason: str
    projected_mean_tps_if_admitted: float | None
    projected_mean_tps_model: float | None
    projected_mean_tps_measured: float | None
    projected_idle_estimate: bool
    drop_per_admit_ewma: float | None
    mean_active_tps: float | None
    headroom_sessions: int | None
    """By KV cells."""
    headroom_sessions_tps: int | None
    headroom: int | None
    """The smaller of both."""
    kv_headroom_pct: float
    settling: bool
    settle_remaining_ms: int
    n_warming: int
    n_pool_sessions: int
    n_idle_sessions: int
    guaranteed: bool
    known_session: bool
    compaction_pressure: float
    governed_by: int | None
    expected_tokens: int | None
    seq_ids_free: int
    queue_len: int
    kv_streams_total: int | None
    kv_streams_free: int | None
    kv_cells_per_stream: int | None


class Session(TypedDict):
    session_id: str
    pool_id: int | None
    slot_id: int | None
    state: str
    n_tokens: int
    n_shared: int
    suffix_n_tokens: int
    marginal_kv_bytes: int
    tps_ewma: float | None
    ttft_ms: float | None
    ctx_used: int
    ctx_total: int
    ctx_headroom_tokens: int
    last_active_ts: int


class SessionTps(TypedDict):
    session_id: str
    pool_id: int | None
    tps_ewma: float | None
    state: str
    ctx_used: int
    ctx_total: int
    ctx_headroom_tokens: int


class Tps(TypedDict):
    """Live tokens per second. A mean over no session is None."""

    ts: int
    aggregate_tps: float
    mean_active_tps: float | None
    n_active: int
    n_warming: int
    sessions: list[SessionTps]


class EventList(TypedDict):
    """Events in order. With `gap`, some before them are not remembered any more."""

    ts: int
    last_event_id: str
    gap: bool
    events: list[dict[str, Any]]


class Compaction(TypedDict):
    """What compact_by_refork did."""

    pool: PoolCreated
    """The pool to go on with."""
    released: PoolRef | None
    """The old pool, whose subtree was released; None if it is the ancestor of the new one."""
