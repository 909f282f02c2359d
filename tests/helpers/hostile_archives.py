"""Malicious archives: number i is a tar or a zip with one to three faults.

The faults: names, links and devices that point outside the folder, duplicate names, members written through a link,
bombs, wrong sizes, headers that claim memory, and endless entries. `taken_apart` extracts and reads one.
"""

from __future__ import annotations

import io
import random
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from embtrain.common.errors import EmbtrainError
from embtrain.data.storage.archives import MAX_MEMBERS, MAX_RATIO, MIN_BOMB_BYTES, extract
from embtrain.data.text.corpus import TextConfig, load

OUT = "left-the-folder"                     # part of every name that points outside
ELSEWHERE = Path(tempfile.gettempdir())
NAMES = [f"../{OUT}", *(f"../../{OUT}{i}" for i in range(4)), f"{ELSEWHERE}/{OUT}",
         f"a/../../{OUT}", f"..\\{OUT}", f"C:\\{OUT}", f"//{OUT}", f"./../{OUT}",
         f"a/./../../../{OUT}", f"~/{OUT}", f"%2e%2e/{OUT}", f"..\u2215{OUT}", "a\0b", "", ".", "..", "x" * 5000,
         "a/" * 3000 + "x", f"\u202e{OUT}", "con\r\nx", "-rf"]
LINKS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"S",
         b"V", b"?"]
TARGETS = ["..", "/", "/etc/passwd", f"../{OUT}", "ok.txt", "../../../../etc"]
ZEROS = bytes(20 << 20)                     # a bomb: compresses about 1,000 times
PACKINGS = ("w", "w:gz", "w:bz2", "w:xz")
Member = tuple[tarfile.TarInfo, bytes]


def info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, target, 0o6777
    return made


def _strange_name(draw: random.Random) -> list[Member]:
    return [(info(draw.choice(NAMES)), b"x")]


def _link(draw: random.Random) -> list[Member]:
    return [(info("link", draw.choice(LINKS), draw.choice(TARGETS)), b"")]


def _through_a_link(draw: random.Random) -> list[Member]:
    return [(info("d", tarfile.SYMTYPE, draw.choice(TARGETS)), b""), (info(f"d/{OUT}"), b"x")]


def _twice(draw: random.Random) -> list[Member]:
    return [(info("twice"), b"1"), (info(draw.choice(("twice", "./twice", "twice/x"))), b"2")]


def _bomb(draw: random.Random) -> list[Member]:
    return [(info("bomb.txt"), ZEROS)]


def _crowd(draw: random.Random) -> list[Member]:
    return [(info(f"{i}.txt"), b"") for i in range(draw.choice((300, 2000)))]


TAR_FAULTS = (_strange_name, _strange_name, _link, _link, _through_a_link, _twice, _bomb, _crowd)
ZIP_FAULTS = (_strange_name, _strange_name, _strange_name, _twice, _bomb, _crowd)


def tar(path: Path, draw: random.Random) -> None:
    members = [(info("ok.txt"), b"fine words\n")]
    for _ in range(draw.choice((1, 1, 2, 3))):
        members += draw.choice(TAR_FAULTS)(draw)
    draw.shuffle(members)
    try:
        data = _tar(members, draw, draw.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)))
    except ValueError:  # a name that needs the other format
        data = _tar(members, draw, tarfile.PAX_FORMAT)
    path.write_bytes(_header(data, draw) if draw.random() < 0.2 else data)


def _tar(members: list[Member], draw: random.Random, form: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=draw.choice(PACKINGS), format=form) as file:  # type: ignore[call-overload]
        for member, body in members:
            member.size = len(body) if member.isreg() else 0
            file.addfile(member, io.BytesIO(body))
    return out.getvalue()


def _header(data: bytes, draw: random.Random) -> bytes:
    """A first header that claims a huge size or a huge name."""
    first = info("././@LongLink", draw.choice((tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.REGTYPE)))
    first.size = draw.choice((1 << 33, 64 << 20, 0o77777777777))
    return first.tobuf(tarfile.GNU_FORMAT) + data


def zip_(path: Path, draw: random.Random) -> None:
    members = [(info("ok.txt"), b"fine words\n")]
    for _ in range(draw.choice((1, 1, 2, 3))):
        members += draw.choice(ZIP_FAULTS)(draw)
    draw.shuffle(members)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for member, body in members:
            made = zipfile.ZipInfo(member.name[:60_000])
            made.compress_type = zipfile.ZIP_DEFLATED
            mode = draw.choice((0, 0o100644, 0o100644, 0o120777, 0o020666, 0o060666, 0o010666))
            made.external_attr = mode << 16
            if made.filename in file.namelist():
                made.filename = made.filename + ("" if draw.random() < 0.5 else "/../x")
            file.NameToInfo.pop(made.filename, None)                 # no warning: intended
            file.writestr(made, body)
    data = bytearray(out.getvalue())
    if draw.random() < 0.3:
        _lie(data, draw)
    path.write_bytes(data)


def _lie(data: bytearray, draw: random.Random) -> None:
    """Falsify a size, method, flag or offset of one directory entry."""
    position = data.find(b"PK\x01\x02")
    where, how = draw.choice(((24, "<I"), (20, "<I"), (10, "<H"), (8, "<H"), (42, "<I")))
    struct.pack_into(how, data, position + where, draw.choice((1, 5, 9, 0xFFFF)))


MAKERS: tuple[Callable[[Path, random.Random], None], ...] = (tar, zip_)


def hostile(path: Path, i: int) -> Path:
    """Archive number i; even ones are tars."""
    MAKERS[i % 2](path, random.Random(f"archive {i}"))
    return path


def below(folder: Path) -> dict[str, int]:
    """All files below a folder and their bytes; links are not followed."""
    return {path.relative_to(folder).as_posix(): path.lstat().st_size for path in folder.rglob("*")}


def taken_apart(place: Path, i: int, members: int = MAX_MEMBERS) -> str:
    """Extract and read archive i in a new folder: whether it was accepted; AssertionError if it does damage."""
    place.mkdir(parents=True)
    archive = hostile(place / "archive", i)
    before, end = below(place), "taken"
    try:
        extract(archive, place / "into", max_members=members)
    except EmbtrainError as error:
        assert error.code in (3, 4) and "\n" not in str(error) and str(archive) in str(error), (i, error)
        end = "refused"
    now = below(place)
    inside = {name: size for name, size in now.items() if name.startswith("into/")}
    assert now.keys() - inside.keys() - {"into"} == before.keys(), (i, now.keys() - before.keys())
    assert not any((place / name).is_symlink() for name in inside), i
    files = [size for name, size in inside.items() if (place / name).is_file()]
    assert len(files) <= members and sum(files) <= max(MIN_BOMB_BYTES, MAX_RATIO * archive.stat().st_size), i
    try:
        load([archive], "auto", TextConfig(min_count=1, valid=0, test=0), None, "archive")
    except EmbtrainError as error:
        assert error.code in (3, 4) and "\n" not in str(error), (i, error)
    assert below(place) == now and not list(ELSEWHERE.glob(f"*{OUT}*")), i
    return end
