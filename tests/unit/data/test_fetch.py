"""Files by hash: places in their order, no damaged file is kept, archives within bounds."""

import bz2
import gzip
import hashlib
import http.server
import io
import lzma
import os
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from helpers.serving import listening

from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.files import sha256
from embtrain.data.catalogue import download as download_module
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.catalogue.fetch import corpus_paths, fetch, fetch_named, gold_path, list_data, verify_named
from embtrain.data.catalogue.recipe_file import UNVERIFIED, RecipeFile
from embtrain.data.catalogue.recipes import KINDS, CorpusFile, CorpusRecipe, load_recipe
from embtrain.data.storage.archives import MAX_READ, extract

TEXT = b"the quick brown fox\n" * 500
HASH = hashlib.sha256(TEXT).hexdigest()


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the user's cache, mirror and network from the tests."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EMBTRAIN_DATA_MIRROR", raising=False)
    monkeypatch.delenv("EMBTRAIN_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download_module, "MAX_RETRIES", 0)


def left(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) if folder.exists() else []


class Server(http.server.BaseHTTPRequestHandler):
    bodies: ClassVar[dict[str, bytes]] = {}
    requested: ClassVar[list[str]] = []
    cut_once: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        self.requested.append(self.path)
        body = self.bodies.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path in self.cut_once:
            self.cut_once.discard(self.path)
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.bodies, Server.requested, Server.cut_once = {}, [], set()
    with listening(Server) as address:
        yield address


def mirrored(folder: Path, body: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = folder / "mirror" / "d" / "fox.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(body)
    monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", str(folder / "mirror"))
    return path


# ---- places

def test_mirror_folder_is_used_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mirrored(tmp_path, TEXT, monkeypatch)
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    assert fetch(RecipeFile(mirror="d/fox.txt", sha256=HASH)) == path
    assert left(tmp_path / "cache") == []


def test_wrong_bytes_in_a_mirror_report_both_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored(tmp_path, TEXT + b"!", monkeypatch)
    with pytest.raises(DataError) as caught:
        fetch(RecipeFile(mirror="d/fox.txt", sha256=HASH), owner="fox")
    assert HASH in str(caught.value) and hashlib.sha256(TEXT + b"!").hexdigest() in str(caught.value)
    assert "\n" not in str(caught.value) and "fox" in str(caught.value)


def test_url_then_cache(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Server.bodies["/a/fox.txt"] = TEXT
    file = RecipeFile(url=f"{server}/a/fox.txt", sha256=HASH, bytes=len(TEXT))
    path = fetch(file)
    assert path.read_bytes() == TEXT and path.name == "fox.txt" and path.is_relative_to(tmp_path / "cache")
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    assert fetch(file) == path
    assert Server.requested == ["/a/fox.txt"]


def test_damaged_cache_is_fetched_again(server: str, tmp_path: Path) -> None:
    Server.bodies["/a/fox.txt"] = TEXT
    file = RecipeFile(url=f"{server}/a/fox.txt", sha256=HASH)
    path = fetch(file)
    path.write_bytes(TEXT[:-1])
    assert fetch(file).read_bytes() == TEXT
    assert len(Server.requested) == 2


def test_wrong_download_leaves_no_file(server: str, tmp_path: Path) -> None:
    Server.bodies["/a/fox.txt"] = b"other"
    with pytest.raises(DataError) as caught:
        fetch(RecipeFile(url=f"{server}/a/fox.txt", sha256=HASH))
    assert HASH in str(caught.value) and hashlib.sha256(b"other").hexdigest() in str(caught.value)
    assert left(tmp_path / "cache") == []


def test_too_long_download_is_cut_off(server: str, tmp_path: Path) -> None:
    Server.bodies["/a/fox.txt"] = TEXT * 100
    with pytest.raises(DataError, match="more than"):
        fetch(RecipeFile(url=f"{server}/a/fox.txt", sha256=HASH, bytes=len(TEXT)))
    assert left(tmp_path / "cache") == []


def test_interrupted_connection_is_tried_again(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "MAX_RETRIES", 1)
    Server.bodies["/a/fox.txt"] = TEXT
    Server.cut_once.add("/a/fox.txt")
    assert fetch(RecipeFile(url=f"{server}/a/fox.txt", sha256=HASH)).read_bytes() == TEXT
    assert len(Server.requested) == 2


def test_missing_file_is_requested_once(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "MAX_RETRIES", 2)
    with pytest.raises(ResourceError, match="404"):
        fetch(RecipeFile(url=f"{server}/a/none.txt", sha256=HASH))
    assert len(Server.requested) == 1 and left(tmp_path / "cache") == []


def test_missing_server_is_one_line() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ResourceError, match="refused") as caught:
        fetch(RecipeFile(url=f"http://127.0.0.1:{port}/fox.txt", sha256=HASH))
    assert "\n" not in str(caught.value)


def test_url_mirror_comes_before_the_address(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", f"{server}/m/")
    Server.bodies |= {"/m/d/fox.txt": TEXT, "/a/hen.txt": b"hen"}
    fetch(RecipeFile(url=f"{server}/a/fox.txt", mirror="d/fox.txt", sha256=HASH))
    fetch(RecipeFile(url=f"{server}/a/hen.txt", mirror="d/hen.txt", sha256=hashlib.sha256(b"hen").hexdigest()))
    assert Server.requested == ["/m/d/fox.txt", "/m/d/hen.txt", "/a/hen.txt"]


def test_offline_mode_downloads_nothing(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    Server.bodies["/a/fox.txt"] = TEXT
    with pytest.raises(ResourceError, match="EMBTRAIN_OFFLINE"):
        fetch(RecipeFile(url=f"{server}/a/fox.txt", sha256=HASH))
    assert Server.requested == []


def test_derived_file_reports_how_to_make_it() -> None:
    with pytest.raises(ResourceError, match=r"git archive .* EMBTRAIN_DATA_MIRROR as corpora/x\.tar\.gz"):
        fetch(RecipeFile(mirror="corpora/x.tar.gz", sha256=HASH, derived="git archive x"))


def test_package_file_of_another_version_is_ignored(server: str) -> None:
    Server.bodies["/a/version.py"] = TEXT
    file = RecipeFile(package="embtrain", path="common/errors.py", url=f"{server}/a/version.py", sha256=HASH)
    assert fetch(file).read_bytes() == TEXT
    with pytest.raises(DataError, match="0" * 64):
        fetch(RecipeFile(package="embtrain", path="common/errors.py", sha256="0" * 64))
    with pytest.raises(ResourceError, match="pip install"):
        fetch(RecipeFile(package="missing_package_here", path="a.txt", sha256=HASH))


# ---- trust

def test_unverified_file_needs_trust_and_is_remembered(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    Server.bodies["/a/fox.txt"] = TEXT
    file = RecipeFile(url=f"{server}/a/fox.txt", sha256=UNVERIFIED)
    with pytest.raises(DataError, match=f"{HASH}.*embtrain data fetch fox --trust"):
        fetch(file, owner="fox")
    assert HASH in capsys.readouterr().err and left(tmp_path / "cache") == []
    path = fetch(file, owner="fox", trust=True)
    assert path.read_bytes() == TEXT
    assert fetch(file, owner="fox") == path
    path.unlink()
    Server.bodies["/a/fox.txt"] = b"something else now"
    with pytest.raises(DataError, match=HASH):
        fetch(file, owner="fox", trust=True)


def test_damaged_list_of_trust_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for text in ("{", "[]", '{"a": 1}'):
        (tmp_path / "cache" / "trusted.json").write_text(text)
        with pytest.raises(DataError, match=r"trusted\.json"):
            fetch(RecipeFile(url="http://127.0.0.1:1/x", sha256=UNVERIFIED))


# ---- by name

def test_first_available_copy_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mirrored(tmp_path, TEXT, monkeypatch)
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    recipe = load_recipe("evals", "rg65")
    copies = (RecipeFile(package="embtrain", path="common/errors.py", sha256="0" * 64),
              RecipeFile(mirror="d/fox.txt", sha256=HASH))
    assert gold_path(recipe.model_copy(update={"copies": copies})) == path
    path.write_bytes(b"x")
    with pytest.raises(DataError):
        gold_path(recipe.model_copy(update={"copies": copies}))


def test_members_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "mirror" / "c" / "x.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("t/b.txt", "t/a.txt", "README"):
            file.writestr(name, name)
    monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", str(tmp_path / "mirror"))
    def recipe(members: tuple[str, ...] | None) -> CorpusRecipe:
        file = CorpusFile(mirror="c/x.zip", sha256=sha256(archive), members=members)
        return CorpusRecipe(name="x", description="", licence="", reader="text", files=(file,))

    paths = corpus_paths(recipe(("t/*.txt",)))
    assert [p.name for p in paths] == ["a.txt", "b.txt"] and [p.read_text() for p in paths] == ["t/a.txt", "t/b.txt"]
    stamps = [path.stat().st_mtime_ns for path in paths]
    assert corpus_paths(recipe(("t/*.txt",))) == paths and [path.stat().st_mtime_ns for path in paths] == stamps
    assert corpus_paths(recipe(None)) == [archive]
    with pytest.raises(DataError, match=r"no member 't/c\.txt'"):
        corpus_paths(recipe(("t/c.txt",)))


def test_list_and_verify_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    rows = {row.name: row for row in list_data()}
    assert rows["gensim-wiki"].where == rows["wordsim353"].where == "embedded" and rows["gensim-wiki"].size == 1695871
    assert rows["text8"].where == rows["rareword"].where == "absent" and rows["text8"].size is None
    assert {row.kind for row in rows.values()} == set(KINDS) and all(row.licence for row in rows.values())
    (checked,) = verify_named("gensim-wiki")
    assert checked.where == "embedded" and [checked.path] == fetch_named("gensim-wiki")
    with pytest.raises(ResourceError, match="embtrain data fetch rareword"):
        verify_named("rareword")
    with pytest.raises(UsageError, match="did you mean"):
        fetch_named("raerword")


MIRROR = os.environ.get("EMBTRAIN_DATA_MIRROR", "")


@pytest.mark.parametrize("kind", KINDS)
def test_real_mirror_agrees_with_the_recipes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not MIRROR or not Path(MIRROR).is_dir():
        pytest.skip("data: EMBTRAIN_DATA_MIRROR names no folder")
    monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", MIRROR)
    seen = 0
    for row in list_data():
        recipe = load_recipe(row.kind, row.name)
        for file in recipe.copies if isinstance(recipe, EvalRecipe) else recipe.files:
            if row.kind == kind and file.mirror and (path := Path(MIRROR, file.mirror)).is_file():
                assert sha256(path) == file.sha256 and path.stat().st_size == file.bytes
                seen += 1
    assert seen


# ---- archives

def tar_of(path: Path, *entries: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as file:
        for info, body in entries:
            info.size = len(body) if info.isreg() else 0
            file.addfile(info, io.BytesIO(body))
    return path


def info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    built = tarfile.TarInfo(name)
    built.type, built.linkname = kind, target
    return built


def zip_of(path: Path, entries: dict[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in entries.items():
            built = zipfile.ZipInfo(name)
            built.external_attr, built.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            file.writestr(built, body)
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_sound_archives_of_every_kind(tmp_path: Path, mode: str) -> None:
    if mode == "zip":
        archive = zip_of(tmp_path / "a", {"d/": b"", "d/b": TEXT, "a": b""})
    else:
        entries = (info("d", tarfile.DIRTYPE), b""), (info("d/b"), TEXT), (info("a"), b"")
        archive = tar_of(tmp_path / "a", *entries, mode=mode)
    paths = extract(archive, tmp_path / "out")
    assert [str(p.relative_to(tmp_path / "out")) for p in paths] == ["a", "d/b"]
    assert paths[0].read_bytes() == b"" and paths[1].read_bytes() == TEXT
    with pytest.raises(ResourceError, match="exists already"):
        extract(archive, tmp_path / "out")


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "..\\x", "C:x", "x" * 300])
@pytest.mark.parametrize("packed", ["zip", "tar"])
def test_names_that_leave_the_folder_are_rejected(tmp_path: Path, name: str, packed: str) -> None:
    archive = zip_of(tmp_path / "a", {name: b"x"}) if packed == "zip" else tar_of(tmp_path / "a", (info(name), b"x"))
    with pytest.raises(DataError):
        extract(archive, tmp_path / "out")
    assert left(tmp_path) == ["a"]


def test_zip_member_without_a_name(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "a", {"a_b": b"x"})
    archive.write_bytes(archive.read_bytes().replace(b"a_b", b"\0_b"))  # the bytes after a NUL are not a name
    with pytest.raises(DataError, match="valid file name"):
        extract(archive, tmp_path / "out")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_rejected(tmp_path: Path, kind: bytes) -> None:
    archive = tar_of(tmp_path / "a", (info("ok"), b"x"), (info("evil", kind, "/etc/passwd"), b""))
    with pytest.raises(DataError, match="link or device"):
        extract(archive, tmp_path / "out", ["ok"])
    assert left(tmp_path) == ["a"]


def test_link_in_a_zip_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="link or device"):
        extract(zip_of(tmp_path / "a", {"evil": b"/etc/passwd"}, 0o120777), tmp_path / "out")


@pytest.mark.parametrize("packed", ["zip", "gz", "bz2", "xz"])
def test_bombs_are_rejected(tmp_path: Path, packed: str) -> None:
    zeros = bytes(24 << 20)
    if packed == "zip":
        archive = zip_of(tmp_path / "a", {"zeros": zeros})
    else:
        archive = tar_of(tmp_path / "a", (info("zeros"), zeros), mode=f"w:{packed}")
    with pytest.raises(DataError, match="allowed"):
        extract(archive, tmp_path / "out")
    assert left(tmp_path) == ["a"]


def test_bomb_in_a_header_is_not_read_at_once(tmp_path: Path) -> None:
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, MAX_READ * 2
    with gzip.open(tmp_path / "a", "wb") as file:
        file.write(long_name.tobuf(tarfile.GNU_FORMAT) + bytes(MAX_READ * 2 + 1024))
    with pytest.raises(DataError, match="a header of"):
        extract(tmp_path / "a", tmp_path / "out")


def test_totals_and_counts_are_limited(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "a", {str(n): TEXT for n in range(10)})
    with pytest.raises(DataError, match="bytes allowed"):
        extract(archive, tmp_path / "out", max_bytes=9 * len(TEXT))
    with pytest.raises(DataError, match="bytes allowed"):  # unrequested members count too
        extract(archive, tmp_path / "out", ["0"], max_bytes=9 * len(TEXT))
    with pytest.raises(DataError, match="9 members"):
        extract(archive, tmp_path / "out", max_members=9)
    assert len(extract(archive, tmp_path / "out", max_bytes=10 * len(TEXT), max_members=10)) == 10


@pytest.mark.parametrize("false_size", [5, len(TEXT) + 100])
def test_false_size_is_rejected(tmp_path: Path, false_size: int) -> None:
    archive = zip_of(tmp_path / "a", {"x": TEXT})
    body = archive.read_bytes()
    central = body.index(b"PK\x01\x02")
    archive.write_bytes(body[: central + 24] + false_size.to_bytes(4, "little") + body[central + 28 :])
    with pytest.raises(DataError):
        extract(archive, tmp_path / "out")
    assert left(tmp_path) == ["a"]


def test_duplicate_name_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="twice"):
        extract(tar_of(tmp_path / "a", (info("x"), b"1"), (info("./x"), b"2")), tmp_path / "out")
    with pytest.raises(DataError, match="twice"):
        extract(tar_of(tmp_path / "b", (info("x"), b"1"), (info("x/y"), b"2")), tmp_path / "out")


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open, open])
def test_damage_is_reported_as_damage(tmp_path: Path, opener) -> None:
    plain = tar_of(tmp_path / "plain", (info("x"), os.urandom(200_000)), (info("y"), TEXT), mode="w").read_bytes()
    with opener(tmp_path / "a", "wb") as file:
        file.write(plain)
    body = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(body[: len(body) // 2])
    with pytest.raises(DataError, match="a: "):
        extract(tmp_path / "a", tmp_path / "out")
    (tmp_path / "b").write_bytes(b"no archive at all" * 100)
    with pytest.raises(DataError, match="damaged"):
        extract(tmp_path / "b", tmp_path / "out")
    second = 512 + -(-200_000 // 512) * 512                           # offset of the header of the second member
    for cut, match in ((plain[:second], "no end mark"), (plain[:second] + b"z" + plain[second + 1:], "damaged header")):
        with opener(tmp_path / "a", "wb") as file:
            file.write(cut)
        with pytest.raises(DataError, match=f"a: damaged archive: {match}"):
            extract(tmp_path / "a", tmp_path / "out")
    assert left(tmp_path) == ["a", "b", "plain"]


def test_zip_with_flipped_bytes_is_rejected(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "a", {"x": os.urandom(5000)})
    body = bytearray(archive.read_bytes())
    body[2000] ^= 255
    archive.write_bytes(body)
    with pytest.raises(DataError, match="damaged"):
        extract(archive, tmp_path / "out")
