"""Download one file from one address through pooch: with retries, a limit in bytes, and progress."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from embtrain.common.errors import DataError, ResourceError
from embtrain.common.progress import Progress

MAX_RETRIES = 2
CONNECT_SECONDS, SILENCE_SECONDS = 15.0, 60.0
_CHUNK = 1 << 18


def download(url: str, target: Path, limit: int, owner: str) -> Path:
    """Download `url` to the new file `target`, at most `limit` bytes; return its path.

    owner: name of the recipe, for errors. Raises ResourceError if the network or the disk fails, DataError if the
    server sends more bytes; `target` then does not exist.
    """
    import pooch  # pooch and requests take a second to import
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    downloader = pooch.create(path=target.parent, base_url="", registry={target.name: None}, urls={target.name: url},
                             retry_if_failed=MAX_RETRIES)
    try:
        return Path(downloader.fetch(target.name, downloader=_Bounded(limit, owner)))
    except requests.RequestException as error:
        raise ResourceError(f"{owner}: {url}: cannot be downloaded: {_innermost_cause(error)}") from error
    except OSError as error:
        raise ResourceError(f"{owner}: {target}: cannot be written: {error.strerror or error}") from error


class _Bounded:
    """A pooch downloader that does not retry a missing file, and stops at `limit` bytes."""

    def __init__(self, limit: int, owner: str):
        self._limit, self._owner = limit, owner

    def __call__(self, url: str, output_file: str | os.PathLike[str], pooch: object) -> None:
        import requests

        # requests would decode gzip as a transfer encoding, and .tar.gz would arrive as .tar
        headers = {"Accept-Encoding": "identity"}
        with requests.get(url, stream=True, timeout=(CONNECT_SECONDS, SILENCE_SECONDS), headers=headers) as reply:
            if 400 <= reply.status_code < 500:
                raise ResourceError(f"{self._owner}: {url}: cannot be downloaded: HTTP {reply.status_code}")
            reply.raise_for_status()
            done = 0
            with open(output_file, "wb") as file, Progress(f"download {self._owner}", _length(reply), "B") as progress:
                for chunk in reply.iter_content(_CHUNK):
                    done += len(chunk)
                    if done > self._limit:
                        raise DataError(f"{self._owner}: {url}: sends more than the {self._limit:,} bytes expected")
                    file.write(chunk)
                    progress.add(len(chunk))


def _length(reply: object) -> int | None:
    header = str(getattr(reply, "headers", {}).get("Content-Length", ""))
    return int(header) if header.isdecimal() and len(header) < 19 else None


def _innermost_cause(error: BaseException) -> str:
    """Return the innermost cause in one line: requests wraps a refused connection in other errors."""
    while isinstance(inner := getattr(error, "reason", None) or next(iter(error.args), None), BaseException):
        error = inner
    return " ".join(str(error).split())[:300]
