"""A server with as many sessions as wanted: real page files, invented figures.

It answers what the dashboard asks for (the files, `/polykv/pools`, `/sessions`, `/tps`, `/events`,
`/capacity`, `/props`), in the real server's shapes, and takes no changes.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

BYTES_PER_CELL = 23_040
BOOT_ID = 5_000
STATES = ("decoding",) * 7 + ("prefilling", "queued", "idle")
TICK_S = 0.5

# name, parent (its place in the list), prefix, branch position, floor
POOLS = (
    ("company handbook", None, 3200, 0, 24.0),
    ("support desk", 0, 4100, 3200, None),
    ("refunds", 1, 4420, 4100, None),
    ("escalations", 1, 4310, 4100, None),
    ("engineering", 0, 5200, 3200, 32.0),
    ("code review", 4, 5900, 5200, None),
    ("research assistants", None, 2048, 0, None),
)

File = tuple[Mapping[str, str], bytes]


class Fleet:
    """Pools and sessions whose rates go up and down with the time."""

    def __init__(self, n_sessions: int, pools: tuple[Any, ...] = POOLS) -> None:
        self._pools = pools
        self._n_sessions = n_sessions

    def sessions(self, now: float) -> list[dict[str, Any]]:
        return [self._session(number, now) for number in range(self._n_sessions)]

    def _session(self, number: int, now: float) -> dict[str, Any]:
        pool = number % len(self._pools)
        state = STATES[(number * 7) % len(STATES)]
        wave = math.sin(now / 9 + number) + 0.4 * math.sin(now * 1.7 + 3 * number)
        suffix = 40 + (number * 37) % 400
        prefix = self._pools[pool][2]
        return {
            "session_id": f"agent-{number:04}",
            "pool_id": BOOT_ID + pool,
            "slot_id": number if state == "decoding" else None,
            "state": state,
            "n_tokens": prefix + suffix,
            "n_shared": prefix,
            "suffix_n_tokens": suffix,
            "marginal_kv_bytes": suffix * BYTES_PER_CELL,
            "tps_ewma": 34 + 7 * wave + (number % 5) if state == "decoding" else None,
            "ttft_ms": 180.0 + (number * 53) % 900,
            "ctx_used": prefix + suffix,
            "ctx_total": 8192,
            "ctx_headroom_tokens": 8192 - prefix - suffix,
            "last_active_ts": int(now * 1000),
        }

    def tps(self, now: float) -> dict[str, Any]:
        sessions = self.sessions(now)
        rates = [s["tps_ewma"] for s in sessions if s["tps_ewma"] is not None]
        return {
            "ts": int(now * 1000),
            "aggregate_tps": sum(rates),
            "mean_active_tps": sum(rates) / len(rates) if rates else None,
            "n_active": len(rates),
            "n_warming": 0,
            "sessions": sessions,
        }

    def pools(self, now: float) -> dict[str, Any]:
        sessions = self.sessions(now)
        pools = [self._pool(place, sessions, now) for place in range(len(self._pools))]
        used = sum(p["own_kv_bytes"] for p in pools) // BYTES_PER_CELL
        used += sum(s["suffix_n_tokens"] for s in sessions) + 700
        return {
            "boot_id": BOOT_ID,
            "tree_depth": 3,
            "seq_ids_used": len(pools) + len(sessions),
            "seq_ids_max": len(pools) + len(sessions) + 12,
            "kv_cells_used": used,
            "kv_cells_total": int(used * 1.6),
            "kv_span": used + 310,
            "memories": [],
            "bytes_per_cell": BYTES_PER_CELL,
            "pools": pools,
        }

    def _pool(self, place: int, sessions: list[dict[str, Any]], now: float) -> dict[str, Any]:
        name, parent, prefix, branch, _ = self._pools[place]
        pool_id = BOOT_ID + place
        children = [BOOT_ID + i for i, pool in enumerate(self._pools) if pool[1] == place]
        attached = [s for s in sessions if s["pool_id"] == pool_id]
        own = (prefix - branch) * BYTES_PER_CELL
        return {
            "pool_id": pool_id,
            "name": name,
            "parent": -1 if parent is None else BOOT_ID + parent,
            "branch_pos": branch,
            "shared_len": branch,
            "prefix_len": prefix,
            "prefix_hash": f"{place + 11:016x}",
            "own_len": prefix - branch,
            "own_kv_bytes": own,
            "subtree_kv_bytes": own + sum(s["marginal_kv_bytes"] for s in attached),
            "dedup_bytes": prefix * BYTES_PER_CELL * len(attached),
            "residency": "resident",
            "n_prefilled": prefix - branch,
            "refs": 1,
            "pinned": place == 0,
            "n_pins": 1 if place == 0 else 0,
            "auto_pinned": bool(children or attached),
            "orphaned_pin": False,
            "last_access_ts": int(now * 1000),
            "hits": 40,
            "queries": 41,
            "children": children,
            "sessions": attached,
            "admission": self._policy(place),
        }

    def _policy(self, place: int) -> dict[str, Any] | None:
        floor = self._pools[place][4]
        if floor is None:
            return None
        return {
            "target_tps_per_session": floor,
            "mode": "enforced",
            "on_saturation": "queue",
            "guarantee_min_sessions": 1,
            "settle_tokens": 48,
            "settle_max_ms": 5000,
            "max_queue": None,
            "queue_timeout_ms": 30000,
            "max_tokens_per_request": None,
        }

    def capacity(self, pool_id: int, now: float) -> dict[str, Any]:
        floor = self._pools[pool_id - BOOT_ID][4]
        rates = [s["tps_ewma"] for s in self.sessions(now) if s["tps_ewma"] is not None]
        mean = sum(rates) / len(rates) if rates else 0.0
        projected = mean - 1.5
        can_admit = floor is None or projected >= floor
        return {
            "can_admit": can_admit,
            "reason": "" if can_admit else "projected mean tps below floor",
            "projected_mean_tps_if_admitted": projected,
            "projected_idle_estimate": False,
            "headroom_sessions": 31,
            "headroom": 2 if can_admit else 0,
            "settling": False,
            "settle_remaining_ms": 0,
            "guaranteed": False,
            "mean_active_tps": mean,
            "n_warming": 0,
            "n_pool_sessions": len(rates),
            "n_idle_sessions": 2,
            "queue_len": 0 if can_admit else 1,
        }

    def events(self, now: float) -> list[dict[str, Any]]:
        """What has happened, oldest first."""
        told: list[tuple[str, dict[str, Any]]] = [
            ("pool_created", {"pool_id": 5000, "prefix_len": 3200}),
            ("pool_forked", {"pool_id": 5001, "parent": 5000, "branch_pos": 3200}),
            ("session_attached", {"pool_id": 5002, "session_id": "agent-0002", "cache_n": 4420}),
            ("admission", {"pool_id": 5004, "session_id": "agent-0011", "decision": "admit"}),
            ("settle_begun", {"pool_id": 5004, "session_id": "agent-0011", "mean_tps": 36.2}),
            ("settle_ended", {"pool_id": 5004, "session_id": "agent-0011", "drop": 1.4}),
            ("kv_pressure", {"action": "idle session saved", "cells_free": 311}),
            ("floor_broken", {"pool_id": 5004, "mean_tps": 30.9, "target": 32}),
            ("admission", {"pool_id": 5004, "session_id": "agent-0018", "decision": "queue"}),
            ("floor_held", {"pool_id": 5004, "mean_tps": 32.6, "target": 32}),
        ]
        start = int(now * 1000) - 1000 * len(told)
        return [
            {"id": f"1-{i}", "kind": kind, "ts": start + 1000 * i, **facts}
            for i, (kind, facts) in enumerate(told, 1)
        ]


class ScriptedServer:
    """Serves `files` (by name; "" is the page) and the fleet at `base_url`, until `stop()`."""

    def __init__(self, files: Mapping[str, File], fleet: Fleet) -> None:
        self._stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(files, fleet))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self, files: Mapping[str, File], fleet: Fleet) -> type[BaseHTTPRequestHandler]:
        stopping = self._stopping

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path, query = urlsplit(self.path)[2:4]
                name = path.removeprefix("/polykv/")
                if path.startswith("/polykv/") and name in files:
                    self._send(*files[name])
                elif name in ("tps", "events") and query != "once=1":
                    self._stream(name)
                else:
                    self._answer(path, name)

            def _answer(self, path: str, name: str) -> None:
                now = time.time()
                documents = {
                    "pools": fleet.pools,
                    "sessions": lambda t: {"sessions": fleet.sessions(t)},
                    "events": lambda t: {"events": fleet.events(t)},
                }
                if name in documents:
                    document = documents[name](now)
                elif name.endswith("/capacity"):
                    document = fleet.capacity(int(name.split("/")[1]), now)
                elif path == "/props":
                    document = {"model_alias": "a model", "opencoti": {"polykv": {"version": "0"}}}
                else:
                    self.send_error(404)
                    return
                body = json.dumps(document).encode()
                self._send({"Content-Type": "application/json"}, body)

            def _send(self, headers: Mapping[str, str], body: bytes) -> None:
                self.send_response(200)
                for header, value in headers.items():
                    self.send_header(header, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, name: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    if name == "events":
                        self._event({"kind": "reset"}, "id: 1-10\nevent: reset\n")
                    while not stopping.is_set():
                        if name == "tps":
                            self._event(fleet.tps(time.time()))
                        stopping.wait(TICK_S)
                except OSError:
                    pass  # the page has gone

            def _event(self, document: Any, head: str = "") -> None:
                self.wfile.write(f"{head}data: {json.dumps(document)}\n\n".encode())
                self.wfile.flush()

            def log_message(self, *_: object) -> None:
                pass

        return Handler
