"""The requests with which ours and llama-server are compared, in the order in which they are sent.

Greedy unless they have a seed. Prompts and answers are short: there are many requests, and every one
is answered by two servers on two models.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Request(NamedTuple):
    name: str
    path: str
    body: Any  # bytes are sent as they are, None sends no body
    method: str = "POST"


STORY = "The old lighthouse keeper looked at the sea and"
LAUGH = "la la la la la la"
MOON = [{"role": "user", "content": "Tell me about the moon."}]
POET = [
    {"role": "system", "content": "You are a poet."},
    {"role": "user", "content": "Describe a river."},
]
POET_ON = [
    *POET,
    {"role": "assistant", "content": "A river sings."},
    {"role": "user", "content": "And a mountain?"},
]
POET_END = [
    *POET_ON,
    {"role": "assistant", "content": "A mountain sleeps."},
    {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "you?"}]},
]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Tell me about the moon."}]}]
PREFILL = [*MOON, {"role": "assistant", "content": "The moon is"}]

SCHEMA = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "green"]}, "ok": {"type": "boolean"}},
    "required": ["color", "ok"],
    "additionalProperties": False,
}
GRAMMAR = 'root ::= ("yes" | "no") " " [a-c]{2}'

LIGHT = {
    "name": "set_light",
    "description": "Turns the light on or off",
    "parameters": {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    },
}
DOOR = {
    "name": "open_door",
    "parameters": {
        "type": "object",
        "properties": {"which": {"enum": ["front", "back"]}},
        "required": ["which"],
        "additionalProperties": False,
    },
}
TOOLS = [{"type": "function", "function": LIGHT}, {"type": "function", "function": DOOR}]
RESPONSES_TOOLS = [{"type": "function", **LIGHT}, {"type": "function", **DOOR}]
MESSAGES_TOOLS = [
    {"name": tool["name"], "input_schema": tool["parameters"]} for tool in (LIGHT, DOOR)
]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
MESSAGES_IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
}
CALLED = [
    {"role": "user", "content": "Light, please."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "set_light", "arguments": '{"on": true}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
]


def native(prompt: Any, n: int = 6, **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "n_predict": n, "temperature": 0, **fields}


def openai(prompt: Any, n: int = 6, **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": n, "temperature": 0, **fields}


def chat(messages: Any = None, n: int = 6, **fields: Any) -> dict[str, Any]:
    return {"messages": messages or MOON, "max_tokens": n, "temperature": 0, **fields}


def responses(text: Any = "Tell me about the moon.", n: int = 6, **fields: Any) -> dict[str, Any]:
    return {"input": text, "max_output_tokens": n, "temperature": 0, **fields}


def messages(turns: Any = None, n: int = 6, **fields: Any) -> dict[str, Any]:
    return {"messages": turns or MOON, "max_tokens": n, "temperature": 0, **fields}


def infill(prefix: str, suffix: str, n: int = 6, **fields: Any) -> dict[str, Any]:
    return {
        "input_prefix": prefix, "input_suffix": suffix, "n_predict": n, "temperature": 0, **fields
    }


def both(name: str, path: str, body: dict[str, Any]) -> list[Request]:
    """The request whole and streamed."""
    return [Request(name, path, body), Request(f"{name}, streamed", path, {**body, "stream": True})]


NATIVE = [
    *both("native", "/completion", native(STORY, 12)),
    Request("native on the old path", "/completions", native(STORY)),
    *both("native goes on", "/completion", native(STORY + " the ships, which")),
    Request("native shorter again", "/completion", native("The old lighthouse")),
    *both("native uncached", "/completion", native(STORY, cache_prompt=False)),
    Request("native after uncached", "/completion", native(STORY)),
    *both("native of one token", "/completion", native("A")),
    *both("native tokens", "/completion", native("Two plus two is", return_tokens=True)),
    *both("token ids", "/completion", native([504, 3575, 282, 4649])),
    Request("ids and text", "/completion", native([504, 3575, " of Spain is"])),
    Request("prompt of one list", "/completion", native(["A cat"])),
    *both("two prompts", "/completion", native(["A cat", "A dog"])),
    Request("three prompts of ids", "/completion", native([[504, 3575], [282], "A cow"])),
    Request("prompt object", "/completion", native({"prompt_string": "A bird"})),
    *both("text of many bytes", "/completion", native("Grüße, 世界! 🎉 naïve", 8)),
    *both("special tokens", "/completion", native("<|im_start|>user\nHi<|im_end|>\n")),
    *both("no token wanted", "/completion", native("Nothing to add", 0)),
    *both("one token wanted", "/completion", native("Nothing to add", 1)),
    *both("probabilities", "/completion", native("Water boils at", 4, n_probs=3)),
    *both("probabilities of one", "/completion", native("Water boils at", 2, n_probs=1)),
    *both("probabilities after sampling", "/completion",
          native("Water boils at", 4, n_probs=3, post_sampling_probs=True)),
    *both("probabilities after warm sampling", "/completion",
          native("Water boils at", 4, n_probs=5, post_sampling_probs=True, temperature=0.8,
                 top_k=10, seed=3)),
    Request("probabilities of a grammar", "/completion",
            native("Is it so?", 8, n_probs=2, grammar=GRAMMAR)),
    Request("probabilities and tokens", "/completion",
            native("Water boils at", 3, n_probs=2, return_tokens=True)),
    *both("stop word", "/completion", native(STORY, 12, stop=["the"])),
    *both("stop at a letter", "/completion", native(STORY, 12, stop=["e", "a"])),
    Request("stop as text", "/completion", native(STORY, 12, stop="the")),
    *both("stop word that never comes", "/completion", native(STORY, 8, stop=["zzzz", " qq"])),
    Request("stop word with probabilities", "/completion",
            native(STORY, 12, stop=["e"], n_probs=2)),
    Request("empty stop word", "/completion", native(STORY, 4, stop=["", "zzzz"])),
    *both("seeded", "/completion", native("Dragons are", 8, temperature=0.9, seed=11)),
    Request("seeded again", "/completion", native("Dragons are", 8, temperature=0.9, seed=11)),
    Request("another seed", "/completion", native("Dragons are", 8, temperature=0.9, seed=12)),
    Request("top_k", "/completion", native("Dragons are", temperature=1, seed=1, top_k=3)),
    Request("no top_k", "/completion", native("Dragons are", temperature=1, seed=1, top_k=0)),
    Request("top_p", "/completion", native("Dragons are", temperature=1, seed=1, top_p=0.5)),
    Request("min_p", "/completion", native("Dragons are", temperature=1, seed=1, min_p=0.3)),
    Request("typical_p", "/completion", native("Dragons are", temperature=1, seed=1,
                                               typical_p=0.4)),
    Request("top_n_sigma", "/completion", native("Dragons are", temperature=1, seed=1,
                                                 top_n_sigma=1)),
    Request("xtc", "/completion", native("Dragons are", temperature=1, seed=1,
                                         xtc_probability=0.5, xtc_threshold=0.05)),
    Request("dynatemp", "/completion", native("Dragons are", temperature=1, seed=1,
                                              dynatemp_range=0.5)),
    Request("mirostat 1", "/completion", native("Dragons are", temperature=1, seed=1, mirostat=1)),
    Request("mirostat 2", "/completion", native("Dragons are", temperature=1, seed=1, mirostat=2)),
    Request("min_keep", "/completion", native("Dragons are", temperature=1, seed=1, top_p=0.01,
                                              min_keep=2)),
    Request("adaptive", "/completion", native("Dragons are", temperature=1, seed=1,
                                              adaptive_target=0.4)),
    Request("samplers by name", "/completion", native("Dragons are", temperature=1, seed=1,
                                                      samplers=["top_k", "temperature"])),
    Request("samplers by letter", "/completion", native("Dragons are", temperature=1, seed=1,
                                                        samplers="kt")),
    Request("no samplers", "/completion", native("Dragons are", seed=1, samplers=[])),
    *both("repeat penalty", "/completion", native(LAUGH, repeat_penalty=1.5)),
    Request("frequency penalty", "/completion", native(LAUGH, frequency_penalty=1.5)),
    Request("presence penalty", "/completion", native(LAUGH, presence_penalty=1.5)),
    Request("penalty over all", "/completion", native(LAUGH, repeat_penalty=2, repeat_last_n=-1)),
    Request("penalty over nothing", "/completion", native(LAUGH, repeat_penalty=2,
                                                          repeat_last_n=0)),
    Request("dry", "/completion", native(LAUGH, dry_multiplier=2, dry_allowed_length=1,
                                         dry_sequence_breakers=["\n"])),
    *both("ignore_eos", "/completion", native("Say bye.<|im_end|>", 8, ignore_eos=True)),
    Request("logit_bias", "/completion", native("Sky is", 4, logit_bias=[[504, 100]])),
    Request("logit_bias by text", "/completion", native("Sky is", 4, logit_bias=[[" red", 100]])),
    Request("logit_bias of an object", "/completion", native("Sky is", 4, logit_bias={"504": 50})),
    Request("logit_bias that forbids", "/completion",
            native("Sky is", 4, logit_bias=[[" the", False], [" a", False]])),
    Request("n_keep", "/completion", native(STORY, n_keep=4)),
    Request("n_keep of all", "/completion", native(STORY, n_keep=-1, n_discard=2)),
    *both("n_indent", "/completion", native("def f():\n    x = 1\n", 12, n_indent=4)),
    Request("time limit", "/completion", native("A list:\n", 8, t_max_predict_ms=600_000)),
    *both("timings per token", "/completion", native(STORY, 4, timings_per_token=True)),
    *both("progress", "/completion", native("Steps to make tea are", 4, return_progress=True)),
    Request("progress, cached", "/completion",
            native("Steps to make tea are these", 4, return_progress=True, stream=True)),
    Request("progress and timings", "/completion",
            native("Steps to bake bread", 4, return_progress=True, timings_per_token=True,
                   stream=True)),
    *both("response fields", "/completion",
          native(STORY, 4, response_fields=["content", "generation_settings/n_predict",
                                            "tokens_cached", "nothing", "timings/prompt_n"])),
    Request("no response fields", "/completion", native(STORY, 4, response_fields=[])),
    *both("grammar", "/completion", native("Is it so?", 12, grammar=GRAMMAR)),
    *both("schema", "/completion", native("JSON:", 40, json_schema=SCHEMA)),
    Request("schema of anything", "/completion", native("JSON:", 6, json_schema={})),
    Request("schema of numbers", "/completion",
            native("JSON:", 24, json_schema={"type": "array", "minItems": 2, "maxItems": 2,
                                             "items": {"type": "integer", "maximum": 9,
                                                       "minimum": 0}})),
    Request("schema cut short", "/completion", native("JSON:", 3, json_schema=SCHEMA)),
    *both("verbose", "/completion", native(STORY, 3, verbose=True)),
    *[Request(f"slot {i}", "/completion", native("In slot", 3, id_slot=i)) for i in (2, 0, 3, 2)],
    Request("slot goes on", "/completion", native("In slot two we go on", 3, id_slot=2)),
    Request("slot beyond", "/completion", native("In slot", 3, id_slot=5)),
    Request("lora of none", "/completion", native(STORY, 3, lora=[])),
    Request("pings", "/completion", native(STORY, 3, sse_ping_interval=1, stream=True)),
    Request("preserved tokens", "/completion",
            native("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", 8,
                   preserved_tokens=["<|im_end|>"])),
    Request("fields of no meaning", "/completion", native(STORY, 3, surprise=1, model="x")),
    Request("null fields", "/completion", native(STORY, 3, stop=None, seed=None, grammar=None)),
]

OPENAI = [
    *both("openai", "/v1/completions", openai("Green is a")),
    *both("openai usage", "/v1/completions",
          openai("Green is a", stream_options={"include_usage": True})),
    *both("openai logprobs", "/v1/completions", openai("Blue", 3, logprobs=2)),
    Request("openai logprobs 0", "/v1/completions", openai("Blue", 3, logprobs=0)),
    *both("openai stop", "/v1/completions", openai(STORY, 12, stop="the")),
    *both("openai prompts", "/v1/completions", openai(["A cat", "A dog"])),
    *both("openai echo", "/v1/completions", openai("Echo me", 3, echo=True)),
    Request("openai suffix", "/v1/completions", openai("Fill", 3, suffix="end", best_of=1, user="u")),
    Request("openai ids", "/v1/completions", openai([504, 3575])),
    Request("openai schema", "/v1/completions", openai("JSON:", 40, json_schema=SCHEMA)),
    Request("openai timings", "/v1/completions",
            openai("Green is a", 3, timings_per_token=True, return_progress=True, stream=True)),
    *both("openai verbose", "/v1/completions", openai("Green is a", 3, verbose=True)),
    Request("openai model", "/v1/completions", openai("Green is a", 3, model="gpt-x")),
    Request("openai without a limit of its own", "/v1/completions",
            {"prompt": "Green", "temperature": 0, "n_predict": 3}),
]

CHAT = [
    *both("chat", "/v1/chat/completions", chat()),
    Request("chat on the old path", "/chat/completions", chat()),
    *both("chat turn 1", "/v1/chat/completions", chat(POET)),
    *both("chat turn 2", "/v1/chat/completions", chat(POET_ON)),
    *both("chat turn 3", "/v1/chat/completions", chat(POET_END)),
    Request("chat turn 2 again", "/v1/chat/completions", chat(POET_ON)),
    Request("chat uncached", "/v1/chat/completions", chat(POET_ON, cache_prompt=False)),
    Request("chat parts", "/v1/chat/completions", chat(PARTS)),
    *both("chat usage", "/v1/chat/completions", chat(stream_options={"include_usage": True})),
    *both("chat logprobs", "/v1/chat/completions", chat(n=3, logprobs=True, top_logprobs=2)),
    Request("chat logprobs alone", "/v1/chat/completions", chat(n=3, logprobs=True)),
    *both("chat stop", "/v1/chat/completions", chat(n=12, stop=["a"])),
    *both("chat schema", "/v1/chat/completions",
          chat(n=40, response_format={"type": "json_schema", "json_schema": {
              "name": "s", "strict": True, "schema": SCHEMA}})),
    Request("chat object", "/v1/chat/completions",
            chat(response_format={"type": "json_object", "schema": SCHEMA}, n=40)),
    Request("chat any object", "/v1/chat/completions",
            chat(response_format={"type": "json_object"})),
    Request("chat text", "/v1/chat/completions", chat(response_format={"type": "text"})),
    *both("chat grammar", "/v1/chat/completions", chat(n=12, grammar=GRAMMAR)),
    *both("chat tools", "/v1/chat/completions", chat(tools=TOOLS)),
    Request("chat tools off", "/v1/chat/completions", chat(tools=TOOLS, tool_choice="none")),
    *both("chat tool wanted", "/v1/chat/completions",
          chat(n=60, tools=TOOLS, tool_choice="required")),
    *both("chat tools in parallel", "/v1/chat/completions",
          chat(n=90, tools=TOOLS, tool_choice="required", parallel_tool_calls=True)),
    Request("chat tool named", "/v1/chat/completions",
            chat(n=60, tools=TOOLS, tool_choice={"type": "function",
                                                 "function": {"name": "open_door"}})),
    Request("chat tool cut short", "/v1/chat/completions",
            chat(n=4, tools=TOOLS, tool_choice="required", stream=True)),
    *both("chat tool has answered", "/v1/chat/completions", chat(CALLED, tools=TOOLS)),
    *both("chat prefill", "/v1/chat/completions", chat(PREFILL)),
    Request("chat seed", "/v1/chat/completions", chat(temperature=0.8, seed=4, top_p=0.9)),
    Request("chat penalties", "/v1/chat/completions",
            chat(frequency_penalty=0.5, presence_penalty=0.5)),
    Request("chat logit_bias", "/v1/chat/completions", chat(n=3, logit_bias={"504": 100})),
    Request("chat max_completion_tokens", "/v1/chat/completions",
            {"messages": MOON, "max_completion_tokens": 3, "temperature": 0, "user": "u",
             "metadata": {"a": "b"}, "store": False}),
    Request("chat timings", "/v1/chat/completions",
            chat(n=3, timings_per_token=True, return_progress=True, stream=True)),
    *both("chat verbose", "/v1/chat/completions", chat(n=3, verbose=True)),
    Request("chat template arguments", "/v1/chat/completions",
            chat(n=3, chat_template_kwargs={"enable_thinking": False})),
    Request("chat reasoning", "/v1/chat/completions",
            chat(n=3, reasoning_format="none", reasoning_effort="low")),
    Request("chat in one slot", "/v1/chat/completions", chat(n=3, id_slot=1)),
    Request("chat tokens", "/v1/chat/completions", chat(n=3, return_tokens=True)),
    Request("chat response fields", "/v1/chat/completions", chat(n=3, response_fields=["choices"])),
    Request("chat counted", "/v1/chat/completions/input_tokens", chat(POET_ON, tools=TOOLS)),
]

RESPONSES = [
    *both("responses", "/v1/responses", responses()),
    Request("responses on the old path", "/responses", responses()),
    *both("responses instructions", "/v1/responses", responses(instructions="You are a poet.")),
    *both("responses turns", "/v1/responses", responses([
        {"role": "user", "content": [{"type": "input_text", "text": "Describe a river."}]},
        {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "A river sings."}]},
        {"role": "user", "content": "And a mountain?"}])),
    *both("responses tools", "/v1/responses",
          responses(n=60, tools=RESPONSES_TOOLS, tool_choice="required")),
    Request("responses tool has answered", "/v1/responses", responses([
        {"role": "user", "content": "Light, please."},
        {"type": "function_call", "call_id": "call_1", "name": "set_light",
         "arguments": '{"on": true}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"}],
        tools=RESPONSES_TOOLS)),
    *both("responses schema", "/v1/responses",
          responses(n=40, text={"format": {"type": "json_schema", "name": "s",
                                           "schema": SCHEMA}})),
    Request("responses seeded", "/v1/responses", responses(temperature=0.9, seed=2)),
    Request("responses timings", "/v1/responses",
            responses(n=3, timings_per_token=True, return_progress=True, stream=True)),
    Request("responses counted", "/v1/responses/input_tokens", responses()),
]

MESSAGES = [
    *both("messages", "/v1/messages", messages()),
    *both("messages system", "/v1/messages", messages(POET[1:], system="You are a poet.")),
    *both("messages turns", "/v1/messages", messages(POET_ON[1:], system=[
        {"type": "text", "text": "You are a poet.", "cache_control": {"type": "ephemeral"}}])),
    *both("messages stop", "/v1/messages", messages(n=12, stop_sequences=["a"])),
    *both("messages tools", "/v1/messages",
          messages(n=60, tools=MESSAGES_TOOLS, tool_choice={"type": "any"})),
    Request("messages tool by itself", "/v1/messages",
            messages(tools=MESSAGES_TOOLS, tool_choice={"type": "auto"})),
    *both("messages tool has answered", "/v1/messages", messages([
        {"role": "user", "content": "Light, please."},
        {"role": "assistant", "content": [
            {"type": "text", "text": "Yes."},
            {"type": "tool_use", "id": "t1", "name": "set_light", "input": {"on": True}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "done"}]}],
        tools=MESSAGES_TOOLS)),
    Request("messages seeded", "/v1/messages", messages(temperature=0.9, seed=2, top_k=20)),
    Request("messages thinking", "/v1/messages",
            messages(thinking={"type": "enabled", "budget_tokens": 10})),
    Request("messages counted", "/v1/messages/count_tokens", messages(POET_ON[1:], system="Hi")),
]

INFILL = [
    *both("infill", "/infill", infill("def add(a, b):\n", "    return c\n")),
    *both("infill with a prompt", "/infill", infill("def add(", "return c\n", prompt="a, b")),
    *both("infill extra", "/infill",
          infill("x = ", "\n", input_extra=[{"filename": "a.py", "text": "y = 1\n"},
                                            {"text": "z = 2\n"}])),
    Request("infill tokens", "/infill", infill("x = ", "\n", 3, return_tokens=True, n_probs=2)),
]

# Like faults, but answered.
ODD = [
    Request("empty prompt", "/completion", native("", 3)),
    Request("empty prompt of ids", "/completion", native([], 3)),
    Request("empty among prompts", "/completion", native(["a", ""], 3)),
    Request("empty prompt, openai", "/v1/completions", openai("", 3)),
    Request("grammar and schema", "/completion", native("a", 3, grammar=GRAMMAR,
                                                        json_schema=SCHEMA)),
    Request("dry base", "/completion", native("a", 2, dry_base=0.5, dry_multiplier=1)),
    Request("stop of a number", "/completion", native("a", 2, stop=5)),
]

# How it goes on is beyond doubt. Several streams lie in the cells in an order that hangs on all
# requests before, and near-ties with it.
COUNT = "\n1, 2, 3, 4, 5, 6, 7, 8,"

CHOICES = [
    *both("two choices", "/completion", {**native(COUNT), "n": 2}),
    Request("three seeded choices", "/completion",
            native(COUNT, n_cmpl=3, temperature=0.2, seed=5)),
    Request("two choices of two prompts", "/completion", {**native([COUNT, COUNT + " 9,"]), "n": 2}),
    *both("openai choices", "/v1/completions", {**openai(COUNT), "n": 2}),
    Request("openai seeded choices", "/v1/completions",
            {**openai(COUNT, temperature=0.2, seed=7), "n": 2}),
    *both("chat choices", "/v1/chat/completions", {**chat(), "n": 2}),
    Request("chat seeded choices", "/v1/chat/completions", {**chat(seed=5), "n": 3}),
]

TEXT = [
    Request("tokenize", "/tokenize", {"content": "Hello <|im_end|> wörld", "parse_special": False}),
    Request("tokenize pieces", "/tokenize",
            {"content": "Hello <|im_end|> 🎉", "add_special": True, "with_pieces": True}),
    Request("tokenize nothing", "/tokenize", {}),
    Request("tokenize a list", "/tokenize", {"content": ["Hello", 504, " there"]}),
    Request("detokenize", "/detokenize", {"tokens": [504, 3575, 282, 2, 1]}),
    Request("detokenize nothing", "/detokenize", {}),
    Request("template", "/apply-template", {"messages": POET_ON, "tools": TOOLS}),
    Request("template prefill", "/apply-template", {"messages": PREFILL}),
]

STATUS = [
    Request("health", "/health", None, "GET"),
    Request("health v1", "/v1/health", None, "GET"),
    Request("models", "/v1/models", None, "GET"),
    Request("models on the old path", "/models", None, "GET"),
    Request("slots", "/slots", None, "GET"),
    Request("lora adapters", "/lora-adapters", None, "GET"),
    Request("no such route", "/v1/nothing", None, "GET"),
    Request("wrong method", "/completion", None, "GET"),
    Request("options", "/v1/chat/completions", None, "OPTIONS"),
]

# The last ones: llama-server may clear a slot for a request that it then refuses.
ERRORS = [
    *both("too long", "/completion", native([504] * 1600, 1)),
    *both("too long, chat", "/v1/chat/completions",
          chat([{"role": "user", "content": "word " * 1600}])),
    *both("too long, messages", "/v1/messages",
          messages([{"role": "user", "content": "word " * 1600}])),
    *both("too long, responses", "/v1/responses", responses("word " * 1600)),
    Request("no prompt", "/completion", {"n_predict": 1}),
    Request("no prompt, openai", "/v1/completions", {"max_tokens": 1}),
    Request("no messages", "/v1/chat/completions", {}),
    Request("no input", "/v1/responses", {}),
    Request("no messages, messages", "/v1/messages", {"max_tokens": 1}),
    Request("prompt of a number", "/completion", native(5)),
    Request("prompt of an object", "/completion", native({"a": 1})),
    Request("prompt of null", "/completion", native(None)),
    Request("prompt of a fraction", "/completion", native([1.5])),
    Request("bad token", "/completion", native([-1])),
    Request("token beyond", "/completion", native([1, 10_000_000])),
    Request("choices 0", "/completion", native("a", n_cmpl=0)),
    Request("choices 99", "/completion", native("a", n_cmpl=99)),
    Request("more choices than slots, chat", "/v1/chat/completions", {**chat(), "n": 9}),
    Request("bad grammar", "/completion", native("a", grammar="root ::= (")),
    Request("bad schema", "/completion", native("a", json_schema={"type": "nope"})),
    Request("n_predict of text", "/completion", native("a", "many")),
    Request("n_predict -5", "/completion", native("a", -5)),
    Request("stream of text", "/completion", native("a", stream="yes")),
    Request("temperature of text", "/completion", native("a", temperature="hot")),
    Request("repeat_last_n -2", "/completion", native("a", repeat_last_n=-2)),
    Request("n_keep -2", "/completion", native("a", n_keep=-2)),
    Request("dry breakers", "/completion", native("a", dry_sequence_breakers=[])),
    Request("samplers of numbers", "/completion", native("a", 2, samplers=[5])),
    Request("lora of text", "/completion", native("a", 2, lora="x")),
    Request("messages of text", "/v1/chat/completions", {"messages": "hi"}),
    Request("message without role", "/v1/chat/completions", {"messages": [{"content": "a"}]}),
    Request("message of a number", "/v1/chat/completions", {"messages": [5]}),
    Request("content of a number", "/v1/chat/completions",
            {"messages": [{"role": "user", "content": 5}]}),
    Request("no content", "/v1/chat/completions", {"messages": [{"role": "user"}]}),
    Request("two prefills", "/v1/chat/completions",
            chat([*PREFILL, {"role": "assistant", "content": "round"}])),
    Request("tools of text", "/v1/chat/completions", chat(tools="x")),
    Request("tool of another kind", "/v1/chat/completions", chat(tools=[{"type": "x"}])),
    Request("tool choice", "/v1/chat/completions", chat(tool_choice="sometimes")),
    Request("tools and grammar", "/v1/chat/completions", chat(tools=TOOLS, grammar=GRAMMAR)),
    Request("response format", "/v1/chat/completions", chat(response_format={"type": "x"})),
    Request("schema and grammar", "/v1/chat/completions",
            chat(json_schema=SCHEMA, grammar=GRAMMAR)),
    Request("top_logprobs alone", "/v1/chat/completions", chat(top_logprobs=2)),
    Request("logprobs and tools", "/v1/chat/completions",
            chat(logprobs=True, tools=TOOLS, stream=True)),
    Request("image", "/v1/chat/completions", chat([{"role": "user", "content": [IMAGE]}])),
    Request("audio", "/v1/chat/completions", chat([{"role": "user", "content": [
        {"type": "text", "text": "Hear:"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}])),
    Request("video", "/v1/chat/completions", chat([{"role": "user", "content": [
        {"type": "input_video", "input_video": {"data": "AAAA"}}]}])),
    Request("smell", "/v1/chat/completions",
            chat([{"role": "user", "content": [{"type": "smell"}]}])),
    Request("image, template", "/apply-template", chat([{"role": "user", "content": [IMAGE]}])),
    Request("image, counted", "/v1/chat/completions/input_tokens",
            chat([{"role": "user", "content": [IMAGE]}])),
    Request("image, messages", "/v1/messages",
            messages([{"role": "user", "content": [MESSAGES_IMAGE]}])),
    Request("image, messages counted", "/v1/messages/count_tokens",
            messages([{"role": "user", "content": [MESSAGES_IMAGE]}])),
    Request("image, responses", "/v1/responses", responses([{"role": "user", "content": [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}])),
    Request("previous response", "/v1/responses", responses(previous_response_id="resp_1")),
    *[Request(f"{method} {path}", path, body, method)
      for path in ("/tools", "/cors-proxy") for method, body in (("GET", None), ("POST", {}))],
    Request("template without messages", "/apply-template", {}),
    Request("tokenize a number", "/tokenize", {"content": 5}),
    Request("detokenize text", "/detokenize", {"tokens": "a"}),
    Request("infill without prefix", "/infill", {"input_suffix": "a"}),
    Request("infill without suffix", "/infill", {"input_prefix": "a"}),
    Request("infill extra of text", "/infill", infill("a", "b", input_extra="x")),
    Request("infill extra without text", "/infill", infill("a", "b", input_extra=[{"a": 1}])),
    Request("embeddings", "/v1/embeddings", {"input": "a"}),
    Request("rerank", "/v1/rerank", {"query": "a", "documents": ["b"]}),
    Request("slot action", "/slots/0?action=erase", {}),
    Request("props", "/props", {}),
    Request("no JSON", "/completion", b"prompt=Hello"),
    Request("JSON cut off", "/v1/chat/completions", b'{"messages": ['),
    Request("no body", "/completion", b""),
    Request("JSON of a list", "/completion", b"[1, 2]"),
    Request("JSON of text", "/completion", b'"Hello"'),
]

REQUESTS = [
    *STATUS, *NATIVE, *OPENAI, *CHAT, *RESPONSES, *MESSAGES, *INFILL, *TEXT, *ODD, *CHOICES,
    *STATUS, *ERRORS,
]
