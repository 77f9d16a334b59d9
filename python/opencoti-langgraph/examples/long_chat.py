"""A chat that becomes too long: the conversation is compacted, and its pool swapped for another.

./polykv serve                       # in one terminal
python examples/long_chat.py         # in another
"""

from __future__ import annotations

import argparse
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from opencoti_langgraph import (
    CompactionNode,
    Compactor,
    ControlClient,
    OpencotiChatModel,
    PoolState,
)

SYSTEM = SystemMessage("You are a travel guide. Answer in two sentences.")
TURNS = [
    "I am Anna and I want to travel to Norway in June. Where should I begin?",
    "I like walking. Which fjord is good for that?",
    "How do I get there from Oslo?",
    "What should I eat there?",
    "Is it light at night in June?",
    "What should I pack for the rain?",
    "Which museum in Oslo do you recommend?",
    "How much money do I need for a week?",
    "Remind me: who am I and where am I going?",
]


class State(MessagesState, PoolState):
    pass


def build(client: ControlClient, model: OpencotiChatModel, max_tokens: int) -> Any:
    def chat(state: State) -> dict[str, Any]:
        answer = model.invoke(state["messages"], pool_id=state["pool_id"])
        return {"messages": [answer]}

    builder = StateGraph(State)
    compactor = Compactor(max_tokens=max_tokens, keep_messages=3)
    builder.add_node("compact", CompactionNode(client, model, compactor))
    builder.add_node("chat", chat)
    builder.add_edge(START, "compact").add_edge("compact", "chat")
    return builder.compile(checkpointer=InMemorySaver())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--max-tokens", type=int, default=400, help="length that is compacted")
    options = parser.parse_args()

    client = ControlClient(options.url)
    model = OpencotiChatModel(base_url=options.url, temperature=0, max_tokens=60)
    graph = build(client, model, options.max_tokens)
    pool = client.create_pool(messages=[SYSTEM], name="guide")
    thread = {"configurable": {"thread_id": "anna"}}
    new: dict[str, Any] = {"messages": [SYSTEM], "pool_id": pool["pool_id"]}
    for turn in TURNS:
        new.setdefault("messages", []).append(HumanMessage(turn))
        state = graph.invoke(new, thread)
        new = {}
        answer = state["messages"][-1]
        told, used = answer.response_metadata, answer.usage_metadata
        print(
            f"pool {state['pool_id']}  prompt {used['input_tokens']:4}  cached {told['cache_n']:4}"
            f"  {len(state['messages']):2} messages  {answer.text[:60]!r}"
        )
    client.end_session(told["session_id"])
    client.release_pool(pool["pool_id"], subtree=True)


if __name__ == "__main__":
    main()
