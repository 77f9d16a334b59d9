"""The command line: what each command asks the server and prints."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ctl import render, top
from ctl.client import CtlError, Server, pool_path
from ctl.text import safe

DEFAULT_URL = "http://127.0.0.1:8080"

# Of a chat request, what shapes its prompt.
CHAT_FIELDS = (
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "reasoning_effort",
)

EXAMPLES = """examples:
  ./polykv ctl pools
  ./polykv ctl create --name handbook --file handbook.txt --pin
  ./polykv ctl create --name support --messages chat.json
  ./polykv ctl fork support --append-prompt ' Today it rains.' --name rainy
  ./polykv ctl create --name snapshot --from-session agent-7
  ./polykv ctl release support --subtree --force
  ./polykv ctl top
  ./polykv ctl --url http://gpu-box:8080 --json sessions | jq .

POOL is a pool's number or its name; FILE may be - for standard input.
Exit status: 0; 1 when the server refuses or does not answer; 2 when the command line is wrong."""


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {safe(message)} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def run(arguments: Sequence[str] | None = None) -> int:
    """The whole program; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # where a terminal cannot show every character
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except CtlError as error:
        print(f"polykv ctl: {safe(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, head for example, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="polykv ctl",
        description="Shows and changes the pools and sessions of a running server.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    key = os.environ.get("LLAMA_API_KEY", "").split(",")[0]
    _add_common(parser, url=os.environ.get("POLYKV_URL") or DEFAULT_URL, api_key=key, json=False)
    common = argparse.ArgumentParser(add_help=False)
    _add_common(common, *[argparse.SUPPRESS] * 3)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, action: Any, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, parents=[common])
        command.set_defaults(run=action)
        return command

    pools = add("pools", _pools, "the tree of pools, with their sessions")
    pools.add_argument("pool", nargs="?", metavar="POOL", help="only this one and what is below it")
    add("sessions", _sessions, "every session that the server knows")
    live = add("top", _top, "pools and sessions, live; q ends it")
    live.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="default: 1")
    live.add_argument("--once", action="store_true", help="one picture, then exit")
    _add_sources(add("create", _create, "makes a pool of a prefix"))
    _add_fork(add("fork", _fork, "makes a pool that shares the beginning of another"))
    _add_changes(add)
    return parser


def _add_common(parser: argparse.ArgumentParser, url: Any, api_key: Any, json: Any) -> None:
    parser.add_argument("--url", default=url, help=f"default: $POLYKV_URL, else {DEFAULT_URL}")
    parser.add_argument("--api-key", default=api_key, metavar="KEY", help="default: $LLAMA_API_KEY")
    parser.add_argument(
        "--json", action="store_true", default=json, help="print the server's answer as it is"
    )


def _add_sources(command: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    sources = command.add_mutually_exclusive_group(required=True)
    sources.add_argument("--prompt", metavar="TEXT", help="the prefix as text")
    sources.add_argument("--file", metavar="FILE", help="the prefix as text, from a file")
    sources.add_argument(
        "--messages", metavar="FILE", help="JSON: a list of messages, or a whole chat request"
    )
    sources.add_argument("--from-session", metavar="S", help="what a session's context holds now")
    command.add_argument("--name")
    command.add_argument("--pin", action="store_true", help="never evict it")
    command.add_argument("--unique", action="store_true", help="do not take an equal pool instead")
    command.add_argument("--no-wait", action="store_true", help="do not wait until it is computed")
    return sources


def _add_fork(command: argparse.ArgumentParser) -> None:
    command.add_argument("parent", metavar="POOL")
    sources = _add_sources(command)
    sources.add_argument("--append-prompt", metavar="TEXT", help="text after the parent's tokens")
    sources.add_argument("--append-file", metavar="FILE", help="the same, from a file")
    sources.add_argument(
        "--append-messages", metavar="FILE", help="messages after those of the parent"
    )
    command.add_argument(
        "--branch-pos",
        type=_whole,
        metavar="D",
        help="share the parent's first D tokens (default: all that agree)",
    )


def _add_changes(add: Any) -> None:
    release = add("release", _release, "drops a reference; without references the pool goes")
    release.add_argument("--subtree", action="store_true", help="with all pools below it")
    release.add_argument("--force", action="store_true", help="at once, without the grace time")
    pin = add("pin", _pin, "never evict the pool")
    pin.add_argument("--ttl", type=_seconds, metavar="S", help="only for so many seconds")
    unpin = add("unpin", _change, "undoes pin")
    evict = add("evict", _change, "drops the pool's cells; its next use computes them again")
    flush = add("flush", _change, "evicts what nobody uses, of the pool and those below it")
    for command, action in ((unpin, "unpin"), (evict, "evict"), (flush, "flush")):
        command.set_defaults(action=action)
    for command in (release, pin, unpin, evict, flush):
        command.add_argument("pool", metavar="POOL")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"{text}: at least 0.05 s")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text}: at least 0")
    return value


def _server(options: argparse.Namespace) -> Server:
    return Server(options.url, options.api_key or None)


def _columns() -> int | None:
    """Of the terminal; None when the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _show(options: argparse.Namespace, answer: Any, lines: Sequence[str]) -> None:
    print(json.dumps(answer) if options.json else "\n".join(lines))


def _pools(options: argparse.Namespace) -> None:
    path = "/polykv/pools" if options.pool is None else pool_path(options.pool)
    tree = _server(options).get(path)
    _show(options, tree, [render.head_line(tree), "", *render.pool_lines(tree, _columns())])


def _sessions(options: argparse.Namespace) -> None:
    answer = _server(options).get("/polykv/sessions")
    _show(options, answer, render.session_lines(answer, _columns(), time.time() * 1000))


def _top(options: argparse.Namespace) -> None:
    server = _server(options)

    def picture(columns: int | None) -> list[str]:
        tree, sessions = server.get("/polykv/pools"), server.get("/polykv/sessions")
        if options.json:
            return [json.dumps({"pools": tree, "sessions": sessions})]
        return render.top_lines(tree, sessions, columns)

    if options.once:
        print("\n".join(picture(_columns())))
    else:
        top.watch(picture, options.interval)


def _create(options: argparse.Namespace) -> None:
    _print_created(options, _server(options).post("/polykv/pools", _pool_body(options)))


def _fork(options: argparse.Namespace) -> None:
    body = _pool_body(options)
    if options.branch_pos is not None:
        body["branch_pos"] = options.branch_pos
    if options.append_prompt is not None:
        body["append_prompt"] = options.append_prompt
    if options.append_file is not None:
        body["append_prompt"] = _read(options.append_file)
    if options.append_messages is not None:
        chat = _read_chat(options.append_messages)
        body.update(chat, append_messages=chat["messages"])
        del body["messages"]
    _print_created(options, _server(options).post(pool_path(options.parent, "fork"), body))


def _print_created(options: argparse.Namespace, pool: Any) -> None:
    _show(options, pool, [render.created_line(pool)])
    warning = render.break_line(pool)
    if warning is not None:
        print(f"polykv ctl: {warning}", file=sys.stderr)


def _pool_body(options: argparse.Namespace) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if options.prompt is not None:
        body["prompt"] = options.prompt
    if options.file is not None:
        body["prompt"] = _read(options.file)
    if options.messages is not None:
        body.update(_read_chat(options.messages))
    if options.from_session is not None:
        body["from_session"] = options.from_session
    if options.name is not None:
        body["name"] = options.name
    for field in ("pin", "unique"):
        if getattr(options, field):
            body[field] = True
    if options.no_wait:
        body["wait"] = False
    return body


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode()
    except OSError as error:
        raise CtlError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CtlError(f"{file}: not UTF-8 at byte {error.start}") from error


def _read_chat(file: str) -> dict[str, Any]:
    """The messages of a file, with what else of a chat request shapes the prompt."""
    try:
        chat = json.loads(_read(file))
    except ValueError as error:
        raise CtlError(f"{file}: not JSON: {error}") from error
    if isinstance(chat, list):
        return {"messages": chat}
    if not isinstance(chat, dict) or "messages" not in chat:
        raise CtlError(f"{file}: neither a list of messages nor an object with 'messages'")
    return {field: chat[field] for field in CHAT_FIELDS if field in chat}


def _release(options: argparse.Namespace) -> None:
    query = "&".join(f"{name}=1" for name in ("subtree", "force") if getattr(options, name))
    path = pool_path(options.pool) + (f"?{query}" if query else "")
    answer = _server(options).delete(path)
    _show(options, answer, [render.change_line(answer)])


def _pin(options: argparse.Namespace) -> None:
    body = {} if options.ttl is None else {"ttl_ms": round(options.ttl * 1000)}
    answer = _server(options).post(pool_path(options.pool, "pin"), body)
    _show(options, answer, [render.change_line(answer)])


def _change(options: argparse.Namespace) -> None:
    answer = _server(options).post(pool_path(options.pool, options.action), {})
    _show(options, answer, [render.change_line(answer)])
