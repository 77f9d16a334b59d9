"""The HTTP side: one request, one JSON answer, or an error that says in one line what happened."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from dataclasses import dataclass
from typing import Any

STATUS_TIMEOUT_S = 30.0


class CtlError(Exception):
    """What went wrong, for the operator. May hold text of others: print it escaped."""


@dataclass(frozen=True)
class Server:
    """A server's address. Methods return the JSON object of a 2xx answer, else raise CtlError."""

    url: str
    api_key: str | None = None

    def get(self, path: str) -> Any:
        return self._call("GET", path, timeout_s=STATUS_TIMEOUT_S)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Waits as long as the server works on it: a pool may take minutes."""
        return self._call("POST", path, json.dumps(body).encode())

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path)

    def _call(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float | None = None
    ) -> Any:
        address = _address(self.url)
        secure = address.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        connection = kind(address.hostname or "", address.port, timeout=timeout_s)
        try:
            connection.request(method, address.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            return _answer(response.status, response.read())
        except ConnectionRefusedError as error:
            raise CtlError(f"no server at {self.url}: is it running? (./polykv serve)") from error
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            raise CtlError(f"no answer from {self.url}: {what}") from error
        except ValueError as error:  # an api key or a host that no header can hold
            raise CtlError(f"cannot ask {self.url}: {error}") from error
        finally:
            connection.close()


def pool_path(pool: str, action: str = "") -> str:
    """The route of a pool, by number or name, or of an action on it."""
    path = f"/polykv/pools/{urllib.parse.quote(pool, safe='')}"
    return f"{path}/{action}" if action else path


def _address(url: str) -> urllib.parse.SplitResult:
    try:
        address = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        valid = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:  # of the port
        valid = False
    if not valid:
        raise CtlError(f"{url} is not the address of a server (http://127.0.0.1:8080)")
    return address


def _answer(status: int, body: bytes) -> Any:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not 200 <= status < 300:
        raise CtlError(_problem(status, answer))
    if not isinstance(answer, dict):
        raise CtlError(f"HTTP {status}, but the answer is not JSON: is this a PolyKV server?")
    return answer


def _problem(status: int, answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return f"HTTP {status}"
    text = f"{error.get('message', 'no message')} (HTTP {status}, {error.get('type', 'no type')}"
    for field in ("mismatch_pos", "n_prompt_tokens", "n_ctx"):
        if field in error:
            text += f", {field} {error[field]}"
    return text + ")"
