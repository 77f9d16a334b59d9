"""The routes that tell about the server, and those that turn text into tokens."""

from __future__ import annotations

from support import Api, assert_problem


def test_health_answers_ok_on_both_paths(api: Api) -> None:
    for path in ("/health", "/v1/health", "/health?ready=1"):
        reply = api.send("GET", path)
        assert (reply.status, reply.json["status"]) == (200, "ok")


def test_models_lists_the_loaded_model(api: Api) -> None:
    models = api.get("/v1/models")
    assert models["object"] == "list"
    assert len(models["data"]) == 1
    assert models["data"][0]["object"] == "model"
    assert models["data"][0]["meta"]["n_ctx_train"] == 8192


def test_props_tell_the_visible_context_and_the_limits_of_pools(api: Api) -> None:
    props = api.get("/props")
    assert props["total_slots"] == 4
    assert props["default_generation_settings"]["n_ctx"] == 8192
    polykv = props["opencoti"]["polykv"]
    assert polykv["max_pools"] == 16
    assert polykv["max_sessions"] == 8
    assert polykv["layout"] == "unified"
    assert polykv["sharing"] == "any_position"
    assert polykv["grace_ms"] == 30_000
    assert polykv["session_idle_ms"] == 600_000
    assert polykv["session_hot_ms"] == 5_000
    assert polykv["park_mib"] == 512
    assert isinstance(polykv["version"], str)
    assert polykv["boot_id"] == api.get("/polykv/pools")["boot_id"]


def test_slots_show_four_idle_slots_with_their_context(api: Api) -> None:
    slots = api.get("/slots")
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert all(slot["is_processing"] is False for slot in slots)
    assert all(slot["n_ctx"] == slot["ctx_total"] == 8192 for slot in slots)
    assert all(slot["pool_id"] is None and slot["session_id"] is None for slot in slots)


def test_metrics_are_what_prometheus_parses_and_count_tokens(api: Api) -> None:
    before = api.metrics()
    reply = api.complete("The sun rises in the", n_predict=5, ignore_eos=True, cache_prompt=False)
    after = api.metrics()

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("llamacpp:prompt_tokens_total") == reply["tokens_evaluated"]
    assert grown("llamacpp:tokens_predicted_total") == 5
    assert after["llamacpp:requests_processing"] == 0
    assert after["opencoti_polykv:num_requests_running"] == 0
    assert after["opencoti_polykv:num_requests_waiting"] == 0
    assert 0 <= after["opencoti_polykv:kv_cache_usage_perc"] <= 1


def test_metrics_do_not_reset_when_they_are_read(api: Api) -> None:
    api.complete("One", n_predict=2)
    first = api.metrics()
    second = api.metrics()
    totals = [name for name in first if name.endswith("_total")]
    assert totals
    assert {name: first[name] for name in totals} == {name: second[name] for name in totals}


def test_tokens_and_text_convert_both_ways(api: Api) -> None:
    text = "Grüße, 世界! 🎉\n\tdone"
    tokens = api.tokens(text)
    assert all(isinstance(token, int) for token in tokens)
    assert api.text(tokens) == text


def test_tokenize_gives_pieces_on_request(api: Api) -> None:
    pieces = api.post("/tokenize", {"content": "two words", "with_pieces": True})["tokens"]
    assert "".join(piece["piece"] for piece in pieces) == "two words"
    assert [piece["id"] for piece in pieces] == api.tokens("two words")


def test_apply_template_renders_the_chat(api: Api) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    prompt = api.post("/apply-template", {"messages": messages})["prompt"]
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_an_unknown_route_is_not_found(api: Api) -> None:
    assert_problem(api.send("GET", "/no/such/route"), 404, "not_found_error")


def test_a_request_id_is_echoed(api: Api) -> None:
    body = {"prompt": "Hi", "n_predict": 1}
    reply = api.send("POST", "/completion", body, headers={"X-Request-Id": "trace-17"})
    assert reply.headers["x-request-id"] == "trace-17"
