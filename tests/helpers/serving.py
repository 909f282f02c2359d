"""A server on loopback that serves files correctly or like a faulty network."""

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
    """A response. `said`: Content-Length, default the size of the body; `to`: target of a redirect."""

    body: bytes = b""
    code: int = 200
    said: int | None = None
    to: str | None = None


@contextlib.contextmanager
def serving(pages: dict[str, Page]) -> Iterator[str]:
    """Address of a server of these paths; any other path gives 404."""

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
    """Address of a local server that runs until the end of the block."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join(5)


def unused_address() -> str:
    """A local address without a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
