"""`embtrain data fetch` from faulty, slow or missing servers: one line, its exit code, no partial file."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.serving import FAR, FAR_SHA256, Page, serving, unused_address

from embtrain import cli
from embtrain.data.catalogue import download, fetch
from embtrain.data.catalogue.recipes import CorpusFile, CorpusRecipe

LOGIN = b"<!doctype html><title>Please log in</title>"
Fetch = Callable[..., tuple[int, str]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("EMBTRAIN_DATA_MIRROR", raising=False)
    monkeypatch.delenv("EMBTRAIN_OFFLINE", raising=False)
    monkeypatch.setattr(download, "MAX_RETRIES", 0)
    return tmp_path / "cache"


@pytest.fixture
def fetched(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fetch:
    """Fetch one file from that address: the exit code and stderr."""
    def fetching(url: str | None, mirror: str | None = None, digest: str = FAR_SHA256) -> tuple[int, str]:
        file = CorpusFile(url=url, mirror=mirror, sha256=digest)
        monkeypatch.setattr(fetch, "find_recipe", lambda name: CorpusRecipe(
            name="far", description="x", licence="x", reader="text", tokenizer="words", files=(file,)))
        monkeypatch.setattr(sys, "argv", ["embtrain", "data", "fetch", "far", "--quiet"])
        code = cli.run()
        return code, capsys.readouterr().err
    return fetching


def files(cache: Path) -> list[str]:
    return [path.name for path in cache.rglob("*") if path.is_file()] if cache.exists() else []


def is_one_line(stderr: str, *parts: str) -> bool:
    return stderr.startswith("embtrain: error: far: ") and stderr.count("\n") == 1 and all(part in stderr
                                                                                           for part in parts)


PAGES = {
    "/good": Page(FAR), "/other": Page(FAR[::-1]), "/login": Page(LOGIN),
    "/cut": Page(FAR[:4000], said=len(FAR)), "/nothing": Page(b"", said=len(FAR)), "/long": Page(FAR * 2),
    "/moved": Page(to="/login", code=302), "/round": Page(to="/round", code=302), "/away": Page(to="file:///etc/passwd",
                                                                                             code=302),
    "/here": Page(to="/good", code=302), "/broken": Page(LOGIN, code=500), "/busy": Page(LOGIN, code=503),
    "/forbidden": Page(LOGIN, code=403),
}


@pytest.mark.parametrize(("path", "code", "says"), [
    ("/other", 3, [FAR_SHA256, hashlib.sha256(FAR[::-1]).hexdigest()]),
    ("/login", 3, [hashlib.sha256(LOGIN).hexdigest()]),
    ("/moved", 3, [hashlib.sha256(LOGIN).hexdigest()]),
    ("/cut", 4, ["/cut", "cannot be downloaded"]), ("/nothing", 4, ["/nothing", "cannot be downloaded"]),
    ("/long", 3, ["sha256"]),
    ("/round", 4, ["cannot be downloaded", "redirects"]), ("/away", 4, ["cannot be downloaded"]),
    ("/broken", 4, ["500"]), ("/busy", 4, ["503"]), ("/forbidden", 4, ["403"]), ("/absent", 4, ["404"]),
])
def test_server_error_is_one_line(fetched: Fetch, cache: Path, path: str, code: int, says: list[str]) -> None:
    with serving(PAGES) as address:
        assert (result := fetched(address + path))[0] == code and is_one_line(result[1], *says), result
    assert files(cache) == []


def test_missing_network_is_one_line(fetched: Fetch, cache: Path) -> None:
    code, stderr = fetched(unused_address() + "/far.txt")
    assert code == 4 and is_one_line(stderr, "refused")
    code, stderr = fetched("http://missing-host.invalid/far.txt")
    assert code == 4 and is_one_line(stderr, "missing-host.invalid")
    assert files(cache) == []


def test_folder_mirror_with_wrong_bytes_is_skipped(
        fetched: Fetch, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
        ) -> None:
    """As a mirror address is, unless nothing else can have the file."""
    path = tmp_path / "mirror" / "far.txt"
    path.parent.mkdir()
    path.write_bytes(LOGIN)
    monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", str(path.parent))
    with serving(PAGES) as address:
        assert fetched(address + "/good", "far.txt") == (0, "") and files(cache) == ["far.txt"]
        (message,) = caplog.messages
        assert message.startswith(f"far: {path}: has sha256 {hashlib.sha256(LOGIN).hexdigest()} but the recipe")
        assert message.endswith(f"; trying {address}/good")
        shutil.rmtree(cache)
        for url, digest, offline in ((None, FAR_SHA256, "0"), (address + "/good", FAR_SHA256, "1"),
                                     (address + "/good", "unverified", "0")):
            monkeypatch.setenv("EMBTRAIN_OFFLINE", offline)
            code, stderr = fetched(url, "far.txt", digest)
            assert code == 3 and "embtrain: error: far: " in stderr and files(cache) == []


def test_mirror_that_is_no_folder_is_reported_once(
        fetched: Fetch, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
        ) -> None:
    a_file = tmp_path / "mirror.txt"
    a_file.write_text("x", encoding="utf-8")
    with serving(PAGES) as address:
        for mirror in (str(tmp_path / "missing"), str(a_file), f"file://{tmp_path}"):
            caplog.clear()
            monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", mirror)
            for _ in range(2):
                assert fetched(address + "/good", "far.txt") == (0, "") and files(cache) == ["far.txt"]
                shutil.rmtree(cache)
            assert caplog.messages == [f"EMBTRAIN_DATA_MIRROR: {mirror}: is neither a folder nor an http(s) address, "
                                       "so it is not used; correct or unset it"]


def test_mirror_that_is_down_or_wrong(fetched: Fetch, cache: Path, monkeypatch: pytest.MonkeyPatch,
                                      caplog: pytest.LogCaptureFixture) -> None:
    with serving({**PAGES, "/m/far.txt": Page(LOGIN)}) as address:
        for mirror in (unused_address(), address + "/m"):
            monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", mirror)
            assert fetched(address + "/good", "far.txt") == (0, "") and files(cache) == ["far.txt"]
            shutil.rmtree(cache)
        assert f"{address}/m/far.txt: has sha256 {hashlib.sha256(LOGIN).hexdigest()}" in caplog.text
        code, stderr = fetched(address + "/other", "far.txt")
        assert code == 3 and is_one_line(stderr, f"{address}/other: has sha256") and files(cache) == []
        code, stderr = fetched(None, "far.txt")
        assert code == 3 and is_one_line(stderr, f"{address}/m/far.txt: has sha256") and files(cache) == []


def test_page_that_redirects_to_the_file_is_followed(fetched: Fetch, cache: Path) -> None:
    with serving(PAGES) as address:
        assert fetched(address + "/here") == (0, "") and files(cache) == ["here"]


def test_fetched_files_stay_without_network(fetched: Fetch, cache: Path) -> None:
    with serving(PAGES) as address:
        url = address + "/good"
        assert fetched(url) == (0, "")
    assert fetched(url) == (0, "") and len(files(cache)) == 1
    (path,) = (path for path in cache.rglob("*") if path.is_file())
    path.write_bytes(FAR[:100])
    code, stderr = fetched(url)
    assert code == 4 and "refused" in stderr and files(cache) == []


@pytest.mark.parametrize(("header", "length"), [("512", 512), ("9" * 5000, None), ("-1", None), ("", None)])
def test_invalid_content_length_is_ignored(header: str, length: int | None) -> None:
    assert download._length(SimpleNamespace(headers={"Content-Length": header})) == length
