"""A provider on the other side of HTTP: it does real work, and drops connections when told to."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Provider:
    """What the provider has done, and how it behaves."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self.calls = 0
        self.drops = 0
        """How many of the next answers are lost after the work is done."""
        self.refuses = 0
        """How many of the next calls are refused before anything is done."""
        self.respects_keys = False
        self.hold = threading.Event()
        """While not set, answers wait (the work is done)."""
        self.hold.set()
        self.working = threading.Event()
        """Set when a call has done its work."""
        self._lock = threading.Lock()
        self.url = ""

    def times(self, what: str) -> int:
        """Return how often a piece of work was done."""
        return Counter(work["what"] for work in self.done)[what]

    def work(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Do what is asked; None drops the connection afterwards."""
        with self._lock:
            self.calls += 1
            if self.refuses:
                self.refuses -= 1
                return 503, {"error": "not now, nothing was done"}
            known = next((w for w in self.done if w["key"] == request.get("key")), None)
            if known is None or not self.respects_keys:
                self.done.append({"what": request["what"], "key": request.get("key")})
            number = len(self.done)
            dropped = self.drops > 0
            self.drops -= dropped
        self.working.set()
        self.hold.wait(30)
        return None if dropped else (200, {"number": number})

    def knows(self, key: str) -> bool:
        """Tell whether work was done under a key."""
        return any(work["key"] == key for work in self.done)


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Run one on a free port of this machine."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = provider.work(request)
            if answer is not None:
                self._answer(*answer)

        def do_GET(self) -> None:
            known = provider.knows(self.path.strip("/"))
            self._answer(200 if known else 404, {})

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:
                return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
