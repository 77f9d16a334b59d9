"""The report as one HTML page: no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from courier.report.charts import cache_chart, gantt_chart, rates_chart
from courier.report.markup import Content, Markup, tag

Json = dict[str, Any]

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
NOTABLE = (
    "settle",
    "guarantee",
    "overcommit",
    "reject",
    "timeout",
    "queue",
    "pressure",
    "floor",
    "saturated",
    "retry",
    "rest",
    "lost",
    "failed",
)


def page(report: Json) -> str:
    title = f"courier: {report['workload']} ({report['mode']})"
    style = files("courier.report").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", Markup(style)),
    )
    body = tag("body", _header(report), tag("main", _sections(report)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _header(report: Json) -> Markup:
    server = report["server"]
    started = datetime.fromtimestamp(report["started_at"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = [
        f"run {report['run_id']}",
        report["mode"],
        started,
        str(server.get("model") or ""),
        str(server.get("url") or ""),
    ]
    line = " · ".join(fact for fact in facts if fact)
    return tag("header", tag("h1", report["workload"]), tag("p", line))


def _sections(report: Json) -> Iterator[Markup]:
    yield tag("div", _tiles(report), class_="tiles")
    yield _section(
        "Tokens per second",
        _legend(
            ("mean", "mean of the sessions"),
            ("session", "one session"),
            ("floor", "floor"),
            ("settling", "settling"),
            ("shortfall", "under the floor"),
        ),
        _scrolling(rates_chart(report), "chart"),
    )
    yield _section(
        "Sessions",
        _legend(
            ("wait", "waiting for the first token"),
            ("decode", "decoding"),
            ("under", "decoding under the floor"),
            ("retry", "retry"),
            ("rest", "sent to rest"),
        ),
        _scrolling(gantt_chart(report), "chart"),
    )
    yield _section("Prompt tokens", _cache(report["cache"]))
    yield _section("Events", _events(report["events"]))
    yield _section("Answers", [_package(package) for package in report["packages"]])


def _section(title: str, *content: Content) -> Markup:
    return tag("section", tag("h2", title), *content)


def _scrolling(content: Markup, kind: str) -> Markup:
    """Can be reached, and so scrolled, by keyboard."""
    return tag("div", content, class_=kind, tabindex=0)


def _legend(*entries: tuple[str, str]) -> Markup:
    return tag("p", [_legend_entry(*entry) for entry in entries], class_="legend")


def _legend_entry(kind: str, name: str) -> Markup:
    return tag("span", tag("i", class_=f"key {kind}"), name)


def _tiles(report: Json) -> Iterator[Markup]:
    summary, cache = report["summary"], report["cache"]
    mean = summary["mean_active_tps"]
    yield _tile("packages", f"{summary['n_packages_done']} of {summary['n_packages']}")
    yield _tile("steps", f"{summary['n_steps_done']} of {summary['n_steps']}")
    yield _tile("wall time", f"{summary['wall_s']:.1f} s", _lives(summary["n_lives"]))
    yield _tile(
        "under the floor",
        f"{summary['under_floor_s']:.1f} s",
        f"{100 * summary['under_floor_share']:.0f} % of the decoding time",
        is_bad=summary["under_floor_share"] > 0.1,
    )
    yield _tile(
        "mean tokens/s",
        "none" if mean is None else f"{mean:.1f}",
        f"floor {report['floor']['target_tps_per_session']:g}",
    )
    yield _tile("agents", f"{summary['mean_agents']:.1f}", f"at most {summary['most_agents']}")
    yield _tile("tokens generated", f"{summary['n_generated']:,}")
    yield _tile(
        "prompt tokens cached",
        f"{100 * cache['saved_share']:.1f} %",
        f"{cache['n_from_pool'] + cache['n_from_session']:,} of {cache['n_prompt']:,}",
    )


def _lives(n: int) -> str:
    return "" if n == 1 else f"courier was started {n} times"


def _tile(name: str, value: str, detail: str = "", is_bad: bool = False) -> Markup:
    return tag(
        "div",
        tag("span", name, class_="name"),
        tag("b", value),
        tag("span", detail, class_="detail"),
        class_="tile bad" if is_bad else "tile",
    )


def _cache(cache: Json) -> Iterator[Markup]:
    yield _legend(
        ("from-pool", f"from the pool: {cache['n_from_pool']:,}"),
        ("from-session", f"from the session itself: {cache['n_from_session']:,}"),
        ("computed", f"computed: {cache['n_computed']:,}"),
    )
    yield cache_chart(cache)
    yield tag(
        "p",
        f"All prompts together have {cache['n_prompt']:,} tokens; "
        f"{100 * cache['saved_share']:.1f} % of them were not computed again.",
    )


def _events(events: Iterable[Json]) -> Markup:
    rows = [_event(event) for event in events]
    head = tag("tr", [tag("th", name) for name in ("time", "event", "whose", "what", "told by")])
    table = tag("table", tag("thead", head), tag("tbody", rows))
    return _scrolling(table, "scroll")


def _event(event: Json) -> Markup:
    is_notable = any(word in event["name"] for word in NOTABLE)
    cells = (
        f"{event['at_s']:.1f} s",
        event["name"],
        event["subject"],
        event["detail"],
        event["source"],
    )
    return tag("tr", [tag("td", cell) for cell in cells], class_="notable" if is_notable else "")


def _package(package: Json) -> Markup:
    n_done, n_steps = len(package["steps"]), package["n_steps"]
    summary = tag("summary", package["package"], tag("span", f" {n_done} of {n_steps} steps"))
    return tag("details", summary, [_answer(step) for step in package["steps"]])


def _answer(step: Json) -> Markup:
    rate = "" if step["tps"] is None else f", {step['tps']:.1f} tokens/s"
    facts = (
        f"{step['n_generated']} tokens{rate}, {step['n_cached']} of {step['n_prompt']} cached, "
        f"{step['finish_reason']}"
    )
    return tag("div", tag("h3", step["step"], tag("span", f" {facts}")), tag("p", step["text"]))
