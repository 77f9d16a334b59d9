"""A nested fan-out: teams share a document, the readers of a team also share the team's task.

Each team forks the document's pool with its task, sends its readers to the fork and releases it;
only the answers leave the team.

    ./polykv serve                       # in one terminal
    python examples/nested_fan_out.py    # in another
"""

from __future__ import annotations

import argparse
import operator
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send
from typing_extensions import TypedDict

from opencoti_langgraph import ControlClient, OpencotiChatModel

DOCUMENT = (Path(__file__).resolve().parent / "document.txt").read_text(encoding="utf-8")
SHARED: list[AnyMessage] = [SystemMessage(f"You are a reviewer of this text.\n\n{DOCUMENT}")]
TEAMS = {
    "people": ["Name the keeper.", "Name the skipper.", "Who is Pilot?"],
    "numbers": ["How high is the tower?", "How many puffins were counted?", "When was it built?"],
}


class Answers(TypedDict):
    answers: Annotated[list[dict[str, Any]], operator.add]


class Team(Answers):
    topic: str
    parent_pool_id: int
    pool_id: int


class Reading(TypedDict):
    topic: str
    question: str
    pool_id: int


def briefing(topic: str) -> list[AnyMessage]:
    """What all readers of a team are told beyond the document."""
    return [
        HumanMessage(f"You belong to the team that looks at the {topic} in the text. Be brief."),
        AIMessage(f"Understood: the {topic}. What is the question?"),
    ]


def build(client: ControlClient, model: OpencotiChatModel, pool_id: int) -> Any:
    def fork(state: Team) -> Command[str]:
        topic = state["topic"]
        forked = client.fork_pool(state["parent_pool_id"], append_messages=briefing(topic))
        pool = forked["pool_id"]
        readers = [
            Send("read", {"topic": topic, "question": question, "pool_id": pool})
            for question in TEAMS[topic]
        ]
        return Command(update={"pool_id": pool}, goto=readers)

    def read(state: Reading) -> dict[str, Any]:
        messages = [*SHARED, *briefing(state["topic"]), HumanMessage(state["question"])]
        answer = model.invoke(messages, pool_id=state["pool_id"])
        cached = answer.response_metadata["cache_n"]
        return {"answers": [{**state, "answer": answer.text, "cache_n": cached}]}

    def release(state: Team) -> None:
        client.release_pool(state["pool_id"], force=True)

    team = StateGraph(Team, output_schema=Answers)
    team.add_node("fork", fork, destinations=("read",))
    team.add_node("read", read)
    team.add_node("release", release)
    team.add_edge(START, "fork").add_edge("read", "release")

    def teams(_: Answers) -> list[Send]:
        return [Send("team", {"topic": topic, "parent_pool_id": pool_id}) for topic in TEAMS]

    whole = StateGraph(Answers).add_node("team", team.compile())
    return whole.add_conditional_edges(START, teams, ["team"]).compile()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    options = parser.parse_args()

    client = ControlClient(options.url)
    model = OpencotiChatModel(
        base_url=options.url, temperature=0, max_tokens=30, session_end=True, saturation_wait=60
    )
    pool = client.create_pool(messages=SHARED, name="reviewed")
    done = build(client, model, pool["pool_id"]).invoke({"answers": []})
    print(f"the document: pool {pool['pool_id']}, {pool['prefix_len']} tokens")
    for answer in done["answers"]:
        head = f"{answer['topic']:8} pool {answer['pool_id']} {answer['cache_n']:5} cached"
        print(f"{head}  {answer['question']:32}{answer['answer'][:60]!r}")
    left = client.pool(pool["pool_id"])
    print(f"forks left: {len(left['children'])}")
    client.release_pool(pool["pool_id"])


if __name__ == "__main__":
    main()
