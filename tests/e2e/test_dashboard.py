"""The dashboard at /polykv/, in a real browser: on the real server, and on one with 1,000 sessions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_page import DOWN, END, ENTER, ESCAPE, HOME, LEFT, PHONE, RIGHT, TAB, UP, Page, start_browser
from harness.client import Exchange
from harness.server import ServerProcess
from scripted_server import Fleet, ScriptedServer
from servers import Servers
from support import Api, assert_problem, eventually, greedy, read_tokens

DASHBOARD = Path(__file__).resolve().parents[2] / "dashboard"
SMALL = ("-c", "1024", "-np", "2", "--kv-unified", "--polykv-tps-interval-ms", "100")
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
UNREACHABLE = 100_000  # tokens per second
TOKENS = list(range(100, 400))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        say = pytest.fail if os.geteuid() == 0 else pytest.skip
        say("no Chromium here: apt-get install chromium chromium-driver")
    driver = start_browser(chromium, chromedriver)
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    """A browser that is told nothing yet; afterwards its console must be empty."""
    page = Page(browser)
    page.emulate()
    page.complaints()
    yield page
    complaints = page.complaints()
    browser.get("about:blank")
    assert page.may_complain or complaints == []


@pytest.fixture(scope="module")
def tiny_flags(tiny_models: Path) -> tuple[str, ...]:
    return ("-m", str(tiny_models / "tiny-llama.gguf"), *SMALL)


@pytest.fixture(scope="module")
def crowded(servers: Servers, server_binary: Path, tiny_flags: Any) -> Iterator[ScriptedServer]:
    """1,000 sessions, in the page that the real server serves."""
    server = servers.shared(server_binary, tiny_flags)
    files = {}
    for path in DASHBOARD.iterdir():
        name = "" if path.name == "index.html" else path.name
        reply = Api(server.base_url).send("GET", f"/polykv/{name}")
        assert reply.status == 200 and reply.body == path.read_bytes()
        wanted = ("content-type", "content-security-policy", "x-content-type-options")
        files[name] = ({header: reply.headers[header] for header in wanted}, reply.body)
    scripted = ScriptedServer(files, Fleet(1000))
    yield scripted
    scripted.stop()


def size(n_bytes: float) -> str:
    """Bytes as the page shows them."""
    value, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def decode(api: Api, pool: str, session: str, own: list[int]) -> Exchange:
    """A session that decodes until it is dropped."""
    prompt = TOKENS + own
    body = greedy(prompt, 7000, stream=True, ignore_eos=True, pool_id=pool, session_id=session)
    exchange = api.open("/completion", body)
    read_tokens(exchange, 8)
    return exchange


def test_the_tree_and_its_figures_are_those_of_the_api(api: Api, page: Page) -> None:
    root = api.create_pool(tokens=TOKENS[:200], name="rivers", pin=True)
    api.fork(root, tokens=TOKENS, name="nile")
    api.fork(root, tokens=TOKENS[:100] + [7, 8, 9], name="rhine", branch_pos=100)
    api.complete([*TOKENS, 5, 6, 7], 4, pool_id="nile", session_id="agent-1")
    api.complete([*TOKENS, 9], 4, pool_id="nile", session_id="agent-2")
    page.open_live(api.base_url)

    def shown() -> dict[str, Any]:
        rows = page.pools().values()
        labels = ("level", "Shared", "Own", "Marginal", "Subtree", "Sessions")
        return {row["name"]: [row[label] for label in labels] for row in rows}

    def told() -> dict[str, Any]:
        tree = api.get("/polykv/pools")
        return {
            pool["name"]: [
                1 if pool["parent"] == -1 else 2,
                size(pool["shared_len"] * tree["bytes_per_cell"]),
                size(pool["own_kv_bytes"]),
                size(sum(session["marginal_kv_bytes"] for session in pool["sessions"])),
                size(pool["subtree_kv_bytes"]),
                str(len(pool["sessions"])),
            ]
            for pool in tree["pools"]
        }

    eventually(lambda: shown() == told() and len(shown()) == 3, "the page shows the tree")
    assert list(shown()) == ["rivers", "nile", "rhine"]
    assert page.pools()["rivers"]["badges"] == ["resident", "pinned", "in use"]
    eventually(lambda: len(page.sessions()) == 2, "the page shows the sessions")
    for name, session in api.sessions().items():
        row = page.sessions()[name]
        assert (row["state"], row["pool"]) == ("idle", "nile")
        assert row["kv"] == size(session["marginal_kv_bytes"])
    tree = api.get("/polykv/pools")
    assert f"{tree['kv_cells_used']:,} of {tree['kv_cells_total']:,}" in page.text("#map-sum")
    owned = {"rivers", "nile", "rhine"} | {"Requests and slots without a session"}
    assert set(page.texts("#map-owners .name")) <= owned


def test_live_rates_and_the_verdict_are_those_of_the_api(api: Api, page: Page) -> None:
    api.create_pool(tokens=TOKENS, name="shared")
    policy = {"target_tps_per_session": UNREACHABLE, "mode": "enforced", "settle_tokens": 4}
    api.post("/polykv/pools/shared/admission", policy)
    page.open_live(api.base_url)
    with decode(api, "shared", "talker", [3, 4]):

        def agrees() -> bool:
            rate = api.get("/polykv/tps?once=1")["sessions"][0]["tps_ewma"]
            shown = page.sessions().get("talker", {}).get("rate", "–")
            return rate is not None and shown != "–" and abs(float(shown) / rate - 1) < 0.1

        eventually(agrees, "the page shows the session's rate")
        assert page.sessions()["talker"]["under"]
        assert page.text("#tile-mean .note") == "1 under the floor"
        line = eventually(
            lambda: page.script("return document.querySelector('#session-rows .line').getAttribute('d')"),
            "the rate has a line",
        )
        assert line.startswith("M")
        capacity = eventually(
            lambda: (c := api.get("/polykv/pools/shared/capacity"))["can_admit"] or c,
            "there is a verdict",
        )
        assert capacity["reason"] == "projected mean tps below floor"
        eventually(lambda: page.text(".verdict .reason") == capacity["reason"], "the page shows it")
        assert page.text(".verdict .badge") == "no"
        page.picture("live")
    eventually(lambda: page.sessions()["talker"]["state"] == "idle", "the page sees the end")


def test_events_are_shown_past_ones_too(api: Api, page: Page) -> None:
    api.create_pool(tokens=TOKENS[:50], name="early")
    page.open_live(api.base_url)

    def events() -> list[str]:
        return page.texts("#events li")

    def shown(kind: str, name: str) -> bool:
        return any(kind in text and name in text for text in events())

    eventually(lambda: shown("pool created", "early"), "what happened before is told")
    page.select("early")
    page.act("pin")
    eventually(lambda: "pool pinned" in events()[0], "what happens is told, the newest first")
    page.find("#event-kind").send_keys("sessions")
    eventually(lambda: not shown("pool", "early"), "only what concerns sessions")


def test_a_pool_is_pinned_unpinned_evicted_and_released(api: Api, page: Page) -> None:
    root = api.create_pool(tokens=TOKENS[:50], name="rivers")["pool_id"]
    page.open_live(api.base_url)
    page.select("rivers")
    page.act("pin")
    eventually(lambda: "pinned" in page.pools()["rivers"]["badges"], "the pin is shown")
    assert api.pool(root)["pinned"]
    assert page.text("#announcement") == "rivers: 1 reference, pinned"
    page.act("unpin")
    eventually(lambda: "pinned" not in page.pools()["rivers"]["badges"], "and its end")
    page.act("evict")
    eventually(lambda: "evicted" in page.pools()["rivers"]["badges"], "the eviction is shown")
    assert api.pool(root)["residency"] == "evicted"
    page.act("release", "force")
    eventually(lambda: page.pools() == {}, "the pool is gone")
    assert page.text("#tree-empty").startswith("No pools yet.")
    assert api.pool_ids() == []


def test_a_refusal_is_shown_in_the_servers_words(api: Api, page: Page) -> None:
    page.may_complain = True  # the browser logs the refusal
    root = api.create_pool(tokens=TOKENS[:50], name="rivers")
    api.fork(root, tokens=TOKENS[:80], name="nile")
    page.open_live(api.base_url)
    page.select("rivers")
    path = f"/polykv/pools/{root['pool_id']}?force=1"
    error = assert_problem(api.send("DELETE", path), 409)
    page.act("release", "force")
    eventually(lambda: page.text("#action-error") == error["message"], "the refusal is shown")
    page.picture("refusal")
    page.click("#action-options [value=subtree]")
    page.click("#action-do")
    eventually(lambda: page.pools() == {}, "both pools are gone")
    assert not page.is_shown("#action")


def test_names_of_others_stay_text(api: Api, page: Page) -> None:
    api.create_pool(tokens=TOKENS[:50], name=HOSTILE)
    api.complete([*TOKENS[:50], 5], 2, pool_id=HOSTILE, session_id=HOSTILE)
    page.open_live(api.base_url)
    page.select(HOSTILE)
    eventually(lambda: HOSTILE in page.sessions(), "the session is shown")
    eventually(lambda: HOSTILE in page.text("#events"), "and in the events")
    page.click("[data-action=evict]")
    assert page.text("#action-title") == f"Evict {HOSTILE}?"
    page.press(ESCAPE)
    assert page.script("return document.images.length") == 0
    assert page.browser.title == "PolyKV"


def test_the_page_runs_nothing_but_its_own_files(api: Api, page: Page) -> None:
    page.may_complain = True  # the browser logs what it refuses
    headers = api.send("GET", "/polykv/").headers
    assert headers["x-content-type-options"] == "nosniff"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    page.open_live(api.base_url)
    for attempt in (
        "document.body.insertAdjacentHTML('beforeend', '<b onclick=1>x</b>')",
        "const s = document.createElement('script'); s.textContent = 'document.title = 1'",
        "const f = document.createElement('iframe'); f.srcdoc = '<p>x'; document.body.append(f)",
    ):
        code = f"try {{ {attempt}; return 'done' }} catch (error) {{ return error.name }}"
        assert page.script(code) == "TypeError"
    reached = page.browser.execute_async_script(
        "const done = arguments[0];"
        "fetch('http://127.0.0.1:9/').then(() => done('yes'), (error) => done(error.message));"
    )
    assert "Content Security Policy" in reached or "Failed" in reached
    assert page.script("return performance.getEntriesByType('resource').map((e) => e.name)") != []
    for url in page.script("return performance.getEntriesByType('resource').map((e) => e.name)"):
        assert url.startswith(f"{api.base_url}/") or url == "http://127.0.0.1:9/"


def test_the_page_asks_for_the_key(
    start_server: Callable[..., ServerProcess], tiny_flags: Any, page: Page
) -> None:
    page.may_complain = True  # the browser logs refused requests
    server = start_server(*tiny_flags, "--api-key", "right", "--api-prefix", "/behind")
    base = server.base_url
    api = Api(base, "right")
    api.create_pool(tokens=TOKENS[:50], name="rivers")
    assert_problem(Api(base).send("GET", "/polykv/pools"), 401)
    assert Api(base).send("GET", "/polykv").headers["location"] == "polykv/"

    page.browser.get(f"{base}/polykv")
    eventually(lambda: page.is_shown("#key"), "the page asks for the key")
    assert page.text("#key-error") == ""
    page.press("wrong", ENTER)
    eventually(lambda: page.text("#key-error") == "Invalid API Key", "it was the wrong one")
    page.picture("key")
    page.press("right", ENTER)
    page.wait_live()
    eventually(lambda: "rivers" in page.pools(), "the tree is shown")
    page.browser.refresh()
    page.wait_live()
    page.click("#forget-key")
    eventually(lambda: page.is_shown("#key"), "the page asks again")


def test_the_page_comes_back_after_the_server_has(
    start_server: Callable[..., ServerProcess], tiny_flags: Any, page: Page
) -> None:
    page.may_complain = True  # the browser logs lost connections
    server = start_server(*tiny_flags)
    api = Api(server.base_url)
    api.create_pool(tokens=TOKENS[:50], name="before")
    page.open_live(api.base_url)
    eventually(lambda: "before" in page.pools(), "the tree is shown")
    server.stop()
    eventually(lambda: page.text("#connection") == "Reconnecting", "the loss is shown")
    eventually(lambda: "Next attempt in" in page.text("#banner p"), "and when it goes on")
    page.picture("reconnecting")
    server.restart()
    api.create_pool(tokens=TOKENS[:60], name="after")
    page.wait_live()
    eventually(lambda: list(page.pools()) == ["after"], "the new server's tree is shown")
    assert page.text("#banner") == ""


def test_a_server_without_a_page_has_none(
    start_server: Callable[..., ServerProcess], tiny_flags: Any
) -> None:
    api = Api(start_server(*tiny_flags, "--no-ui").base_url)
    assert_problem(api.send("GET", "/polykv/"), 404)
    assert api.get("/polykv/pools")["pools"] == []


def test_a_thousand_sessions_stay_usable(crowded: ScriptedServer, page: Page) -> None:
    page.open_live(crowded.base_url)
    eventually(lambda: page.text("#sessions-count") == "1,000 sessions", "all are counted")
    assert 5 < len(page.sessions()) < 60
    assert page.script("return document.querySelectorAll('*').length") < 3000
    first = page.text("#session-rows .line")
    page.script("document.querySelector('#session-scroll').scrollTop = 1e9")
    eventually(lambda: "agent-0999" in page.sessions() or "agent-0997" in page.sessions(), "the end")
    assert page.text("#session-rows .line") == first

    page.find("#find").send_keys("agent-0770")
    eventually(lambda: list(page.sessions()) == ["agent-0770"], "one is found")
    assert page.text("#sessions-count") == "1 of 1,000"
    rate = page.sessions()["agent-0770"]["rate"]
    eventually(lambda: page.sessions()["agent-0770"]["rate"] != rate, "its rate goes on")
    page.find("#find").clear()
    page.find("#find").send_keys("code review")
    eventually(lambda: {s["pool"] for s in page.sessions().values()} == {"code review"}, "by pool")
    page.find("#find").clear()
    page.find("#find").send_keys(" ")
    page.find("#state").send_keys("under")
    eventually(lambda: all(s["under"] for s in page.sessions().values()), "those under the floor")
    page.find("#order").send_keys("slowest")

    def in_order() -> bool:
        rates = [float(session["rate"]) for session in page.sessions().values()]
        return len(rates) > 5 and rates == sorted(rates)

    eventually(in_order, "the slowest come first")
    page.picture("thousand")


def test_the_tree_is_walked_by_keyboard(crowded: ScriptedServer, page: Page) -> None:
    page.open_live(crowded.base_url)
    eventually(lambda: len(page.pools()) == 7, "the tree is shown")
    page.press(TAB)
    assert page.focused() == "Skip to the pools"
    page.press(ENTER, TAB)
    assert page.focused() == "5000"
    page.press(DOWN, DOWN)
    assert page.focused() == "5002"
    eventually(lambda: page.text("#inspector h3") == "refunds", "it is selected")
    page.press(LEFT)
    assert page.focused() == "5001"
    page.press(LEFT)
    eventually(lambda: "refunds" not in page.pools(), "the branch is closed")
    page.press(RIGHT, RIGHT)
    assert page.focused() == "5002"
    page.press(END)
    assert page.focused() == "5006"
    page.press(HOME, DOWN, UP, ENTER)
    assert page.focused() == "unpin"
    page.press(ENTER)
    assert page.is_shown("#action")
    assert page.focused() == "action-do"
    page.press(ESCAPE)
    assert not page.is_shown("#action")
    assert page.focused() == "unpin"


def test_the_page_fits_a_phone(crowded: ScriptedServer, page: Page) -> None:
    page.emulate(PHONE)
    page.open_live(crowded.base_url)
    eventually(lambda: len(page.pools()) == 7 and page.sessions(), "all is shown")
    assert page.script("return document.documentElement.scrollWidth") == PHONE[0]
    cut = page.script(
        "return [...document.querySelectorAll('main button, main input, main select')]"
        "  .filter((node) => node.offsetParent !== null)"
        "  .filter((node) => node.getBoundingClientRect().right > innerWidth)"
        "  .map((node) => node.textContent)"
    )
    assert cut == []
    page.select("engineering")
    page.find("[data-action=release]").click()
    assert page.find("#action").rect["width"] <= PHONE[0]
    page.picture("phone-release")
    page.press(ESCAPE)
    page.emulate((PHONE[0], 2800))
    page.picture("phone")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_can_be_read(
    crowded: ScriptedServer, page: Page, scheme: str
) -> None:
    page.emulate(scheme=scheme)
    page.open_live(crowded.base_url)
    eventually(lambda: len(page.pools()) == 7 and page.all(".verdict"), "all is shown")
    style = page.script(
        "const style = getComputedStyle(document.documentElement);"
        "return Object.fromEntries(arguments[0].map((n) => [n, style.getPropertyValue('--' + n)]));",
        ["page", "surface", "sunken", "text", "muted", "accent", "accent-soft"]
        + [f"{level}{end}" for level in ("good", "warn", "bad", "busy") for end in ("", "-soft")],
    )
    assert (luminance(style["page"]) < 0.1) == (scheme == "dark")
    pairs = [(ink, paper) for ink in ("text", "muted") for paper in ("page", "surface", "sunken")]
    pairs += [(level, f"{level}-soft") for level in ("good", "warn", "bad", "busy", "accent")]
    pairs += [("text", "accent-soft"), ("muted", "accent-soft"), ("bad", "surface")]
    poor = {pair: contrast(style[pair[0]], style[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in poor.items() if ratio < 4.5} == {}
    page.picture(scheme)


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", as WCAG defines it."""
    parts = [int(colour.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: str, paper: str) -> float:
    darker, lighter = sorted((luminance(ink), luminance(paper)))
    return (lighter + 0.05) / (darker + 0.05)
