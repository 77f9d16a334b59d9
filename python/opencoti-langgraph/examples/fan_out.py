"""Eight readers of one document: `Send` fans them out, as many as the gate finds room for.

./polykv serve                       # in one terminal
python examples/fan_out.py           # in another
"""

from __future__ import annotations

import argparse
import operator
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send
from typing_extensions import TypedDict

from opencoti_langgraph import CapacityGate, ControlClient, OpencotiChatModel, PoolState

DOCUMENT = (Path(__file__).resolve().parent / "document.txt").read_text(encoding="utf-8")
SHARED = [SystemMessage(f"You answer questions about this text in one sentence.\n\n{DOCUMENT}")]
QUESTIONS = [
    "Who keeps the lighthouse?",
    "When was the lighthouse built?",
    "How far does its light reach?",
    "What happened in the storm?",
    "What does the keeper grow?",
    "Who visits the island, and how often?",
    "What is written over the door?",
    "What is the island called?",
]


class State(PoolState):
    todo: list[str]
    answers: Annotated[list[dict[str, Any]], operator.add]


class Reading(TypedDict):
    question: str
    pool_id: int


def build(client: ControlClient, model: OpencotiChatModel) -> Any:
    """The graph: gate, then a batch of readers, until every question has its answer."""

    def dispatch(state: State) -> Command[str]:
        n_readers = max(1, min(state["headroom_sessions"] or len(state["todo"]), 8))
        batch, rest = state["todo"][:n_readers], state["todo"][n_readers:]
        readers = [Send("read", {"question": q, "pool_id": state["pool_id"]}) for q in batch]
        return Command(update={"todo": rest}, goto=readers)

    def read(state: Reading) -> dict[str, Any]:
        messages = [*SHARED, HumanMessage(state["question"])]
        answer = model.invoke(messages, pool_id=state["pool_id"])
        told = answer.response_metadata
        return {
            "answers": [
                {
                    "question": state["question"],
                    "answer": answer.text,
                    "cache_n": told["cache_n"],
                    "tps": told["session_tps"],
                }
            ]
        }

    def collect(state: State) -> Command[str]:
        return Command(goto="gate" if state["todo"] else END)

    builder = StateGraph(State)
    builder.add_node("gate", CapacityGate(client, go="dispatch"), destinations=("dispatch",))
    builder.add_node("dispatch", dispatch, destinations=("read",))
    builder.add_node("read", read)
    builder.add_node("collect", collect, destinations=("gate", END))
    builder.add_edge(START, "gate").add_edge("read", "collect")
    return builder.compile()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--floor", type=float, default=5.0, help="tokens per second and reader")
    options = parser.parse_args()

    client = ControlClient(options.url)
    pool = client.create_pool(messages=SHARED, name="lighthouse")
    client.set_admission(pool["pool_id"], target_tps_per_session=options.floor, mode="enforced")
    model = OpencotiChatModel(
        base_url=options.url,
        temperature=0,
        max_tokens=40,
        session_end=True,  # a reader asks once
        saturation_wait=60,
    )
    graph = build(client, model)
    done = graph.invoke({"todo": QUESTIONS, "answers": [], "pool_id": pool["pool_id"]})
    print(f"pool of {pool['prefix_len']} tokens, computed in {pool['prefill_ms'] / 1000:.1f} s")
    for answer in done["answers"]:
        rate = f"{answer['tps']:.1f}" if answer["tps"] else "-"
        print(f"{answer['cache_n']:5} cached {rate:>6} t/s  {answer['question']}")
        print(f"{'':21}{answer['answer'][:90]!r}")
    client.release_pool(pool["pool_id"])


if __name__ == "__main__":
    main()
