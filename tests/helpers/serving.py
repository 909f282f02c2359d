"""A server on loopback that serves files well, or as a bad net does."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

FAR = b"the quick brown fox\n" * 500
FAR_SHA256 = hashlib.sha256(FAR).hexdigest()


@dataclass(frozen=True)
class Page:
    """An answer: `said` bytes are promised, the body's own number unless told, and `to` is where it sends one on."""

    body: bytes = b""
    code: int = 200
    said: int | None = None
    to: str | None = None


@contextlib.contextmanager
def serving(pages: dict[str, Page]) -> Iterator[str]:
    """The address of a server of these paths; any other is 404."""

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            if page is None:
                self.send_error(404)
                return
            self.send_response(page.code)
            if page.to is not None:
                self.send_header("Location", page.to)
            self.send_header("Content-Length", str(len(page.body) if page.said is None else page.said))
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with listening(Server) as address:
        yield address


@contextlib.contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on this machine, until the end of the block."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join(5)


def nobody() -> str:
    """An address on this machine where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
