from __future__ import annotations

from typing import Any

from courier.workload import Workload


def small_workload(n_packages: int = 3, n_steps: int = 2, **fields: Any) -> Workload:
    return Workload.model_validate(
        {
            "name": "small",
            "floor": {"target_tps_per_session": 10},
            "request": {"max_tokens": 8},
            "pool": {"name": "shared", "system": "Be brief."},
            "steps": [{"id": f"s{i}", "prompt": f"{i}: $topic"} for i in range(n_steps)],
            "packages": [{"id": f"p{i}", "vars": {"topic": f"t{i}"}} for i in range(n_packages)],
            **fields,
        }
    )
