"""Damaged input files: input i of a kind is valid files with a few random faults, the same in every run.

For any input, a command must exit with 0, 2, 3 or 4 and report errors as lines that name a file, a line or a key. It
must not show a traceback, execute the content of a file, or take unbounded memory or time.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from embtrain import cli

ENDS = (0, 2, 3, 4)
CANARY = "canary-was-run"
PICKLE = f"cos\nsystem\n(S'touch {CANARY}'\ntR.".encode()
KEY = re.compile(r"error: (strategy|corpus): |error: \S*/|\b[a-z_]+(\.[a-z_]+)+\b|--[a-z]+|:\d+|\b(line|row) \d+")
NUMBERS = [b"-1", b"0", b"1", b"2147483648", b"99999999999999999999", b"1e999", b"1e-320", b"nan", b"-inf", b"0x10",
           b"1_000", "٣".encode(), b"1.5", b"", b"+1", b"1e5"]
STRANGE = [b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b"\n", b"\n\n\n", b"\t", b" ", b"\xe2\x80\xa8", b"\x85",
           b"\xc3", b"\xed\xa0\x80", "שלום عالم".encode(), "é̂̃".encode(), b"x" * 70_000, b"[" * 2000,
           b"{" * 300, b'"', b"'", b"%", b"&a [*a, *a]", b"!!python/object/apply:os.system ['touch " + CANARY.encode()
           + b"']", b"<!DOCTYPE x [<!ENTITY a 'b'>]>", b"null", b"NaN", b"-", b": ", b"# ", b"../../x", b"/etc/passwd",
           PICKLE]
LIKE: dict[type, list[object]] = {
    bool: [True, False],
    str: ["", "x", "auto", "none", "../x", "/dev/zero", "a/" + "x" * 5000, "a\0b", "ace", "ranking"],
    int: [0, 1, 2, 3, -1, 7, 63, 1000, 2**31 - 1, 2**31, 2**63, 10**30],
    float: [0, 1, 0.0, 1e-300, 1e-9, 0.5, 0.999, 1.5, 30.0, 1e6, 1e30, 1e300, -1e-9, -1.0, math.inf, math.nan]}
VALUES = [None, True, False, 0, 1, -1, 2, 7, 100, 2**31, 2**63, 10**30, 0.0, 0.5, -0.5, 1e-300, 1e300, math.inf,
          math.nan, "", "x", "auto", "none", "../x", "/dev/zero", "שלום", "a\0b", "a/" + "x" * 5000, [], [1], ["x"],
          [[[]]], {}, {"x": 1}, "1e3", "0x10", "!!python/name:os.system"]
WHOLE = [b"", b"\n", b"\0" * 512, PICKLE, b"\x1f\x8b", b"PK\x03\x04", b"BZh9", b"\xfd7zXZ\x00", b"word", b"{}", b"[]",
         b"null", b"1", b'"x"', b"[" * 100_000, b"\xff" * 1000, b"\xef\xbb\xbf", b"a: &a [*a]", b"\r\n" * 100]


@dataclass(frozen=True)
class Kind:
    """Valid files, the pattern of those that are damaged, and the commands that read them."""

    name: str
    make: Callable[[Path], None]                            # writes the valid files into an empty folder
    harmed: str                                             # pattern of the damaged files
    commands: tuple[tuple[str, ...], ...]                   # one of them reads each input
    flips: float = 0.1                                      # share of inputs with only one flipped bit
    answer: Callable[[Path, str], object] | None = None     # checksummed: the result of a command that exits with 0
    harm: Callable[[bytes, random.Random], bytes] | None = None    # replaces the damage to bytes


@dataclass
class Outcome:
    """The outcome of one command."""

    code: int
    out: str
    err: str
    cpu: float       # seconds
    grown: int       # peak resident memory minus that before, in bytes

    def faults(self, names: list[str]) -> list[str]:
        """Violations of the contract; `names`: files and folders that an error may name."""
        if self.code not in ENDS:
            return [f"ended in {self.code}: {self.err}"]
        violations = []
        if "Traceback" in self.err + self.out:
            violations.append("shows a traceback")
        said = [line for line in self.err.splitlines() if line]
        unexpected = [line for line in said if not line.startswith(("embtrain: ", "WARNING:"))]
        if unexpected and (self.code != 0 or any(".py:" in line for line in unexpected)):
            violations.append(f"says {unexpected[0][:120]!r}")
        if self.code in (3, 4) or (self.code == 2 and "embtrain: error: " in self.err):
            errors = [line for line in said if line.startswith("embtrain: error: ")]
            if not errors or (self.code != 2 and len(errors) > 1):
                violations.append(f"refuses in {len(errors)} lines")
            for line in errors:
                if not KEY.search(line) and not any(name in line for name in names):
                    violations.append(f"names no file, line or key: {line[:200]!r}")
        return violations


@dataclass
class Tally:
    """The results of a campaign."""

    first: int = 0                           # number of the first input
    inputs: int = 0
    ends: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)    # maximal CPU seconds of an input, and its number
    largest: tuple[int, int] = (0, 0)        # maximal bytes minus twice the size of the input, and its number

    def row(self, kind: str) -> str:
        """A table row: kind, inputs, exit codes, faults, maximal time and memory."""
        ends = ", ".join(f"{n:,} ended in {code}" for code, n in sorted(self.ends.items()))
        return (f"| {kind} | {self.inputs:,} ({self.first}:{self.inputs}) | {ends} | {len(self.faults)} | "
                f"{self.slowest[0]:.2f} | {max(0, self.largest[0]) / 2**20:.0f} |")


# -- damage ------------------------------------------------------------------------------------------------------------


def harm(data: bytes, draw: random.Random) -> bytes:
    """One to three random faults, or entirely different content."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        data = draw.choice(HARMS)(data, draw) if draw.random() > 0.03 else draw.choice(WHOLE)
    return data


def cut_or_flip(data: bytes, draw: random.Random) -> bytes:
    """Faults of a disk or a copy: a checksummed file must be rejected or give its own result."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        data = draw.choice((flip, _cut, _take_out, _twice, _put_over))(data, draw)
    return data


def another_value(data: bytes, draw: random.Random) -> bytes:
    """A settings file, JSON or YAML, with other values at one to three of its keys."""
    tree = json.loads(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        node = tree
        while isinstance(node[key := draw.choice(list(node))], dict) and node[key] and draw.random() < 0.95:
            node = node[key]
        node[key] = draw.choice(LIKE[type(node[key])] if draw.random() < 0.8 and type(node[key]) in LIKE else VALUES)
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    return re.sub(r"(?<= )(-?)Infinity", r"\1.inf", text).replace(" NaN", " .nan").encode()


def flip(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return data
    position = draw.randrange(len(data))
    return data[:position] + bytes([data[position] ^ 1 << draw.randrange(8)]) + data[position + 1:]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[:draw.randrange(len(data) + 1)]


def _take_out(data: bytes, draw: random.Random) -> bytes:
    a = draw.randrange(len(data) + 1)
    return data[:a] + data[a + draw.choice((1, 2, 8, 100)):]


def _twice(data: bytes, draw: random.Random) -> bytes:
    a = draw.randrange(len(data) + 1)
    b = a + draw.choice((1, 8, 60))
    return data[:a] + data[a:b] * draw.choice((2, 3, 200)) + data[b:]


def _put_in(data: bytes, draw: random.Random) -> bytes:
    a = draw.randrange(len(data) + 1)
    return data[:a] + draw.choice(STRANGE) + data[a:]


def _put_over(data: bytes, draw: random.Random) -> bytes:
    a, new = draw.randrange(len(data) + 1), draw.choice((b"\0", b"\xff", b"\x7f", b"\x80", b" ", b"\xff" * 8))
    return data[:a] + new + data[a + len(new):]


def _number(data: bytes, draw: random.Random) -> bytes:
    """Replace a number, if there is one."""
    matches = list(re.finditer(rb"-?\d+(\.\d+)?", data[:1 << 16]))
    if not matches:
        return _put_in(data, draw)
    match = draw.choice(matches)
    return data[:match.start()] + draw.choice(NUMBERS) + data[match.end():]


def _word(data: bytes, draw: random.Random) -> bytes:
    """Copy a word of the file over another."""
    matches = list(re.finditer(rb"[^\s,:]+", data[:1 << 16]))
    if len(matches) < 2:
        return _put_in(data, draw)
    target, source = draw.choice(matches), draw.choice(matches)
    return data[:target.start()] + source[0] + data[target.end():]


def _line(data: bytes, draw: random.Random) -> bytes:
    """Move, remove or double a line."""
    lines = data.split(b"\n")
    line = lines.pop(draw.randrange(len(lines)))
    for _ in range(draw.choice((0, 1, 2))):
        lines.insert(draw.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


HARMS = [flip, _cut, _take_out, _twice, _put_in, _put_over, _number, _number, _word, _line]


# -- the campaign ------------------------------------------------------------------------------------------------------


def run_command(argv: tuple[str, ...], place: Path) -> Outcome:
    """Run the command in this process: exit code, output, time and memory."""
    out, err, resident = io.StringIO(), io.StringIO(), _reset_peak()
    began = time.process_time()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(place)
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setenv("EMBTRAIN_OFFLINE", "1")
        patch.delenv("EMBTRAIN_DATA_MIRROR", raising=False)
        patch.setattr(sys, "argv", ["embtrain", *argv])
        code = cli.run()
    if code not in ENDS:  # the folder with the crash report is deleted
        err.writelines(path.read_text() for path in sorted(place.glob("embtrain-crash-*.txt")))
    return Outcome(code, out.getvalue(), err.getvalue(), time.process_time() - began, _peak() - resident)


def campaign(kind: Kind, numbers: range, place: Path, said: Callable[[int], None] = lambda i: None) -> Tally:
    """Run inputs of these numbers in turn in a folder below `place`; `said` receives each number before it starts."""
    sound, folder, tally = place / f"{kind.name}-sound", place / kind.name, Tally(numbers.start)
    if not sound.exists():
        sound.mkdir()
        kind.make(sound)
    expected = answers(kind, sound, folder)
    names = sorted({part for path in sound.rglob("*") for part in path.relative_to(sound).parts})
    victims = sorted(path.relative_to(sound) for path in sound.glob(kind.harmed) if path.is_file())
    assert victims, f"{kind.name}: no file is {kind.harmed}"
    for i in numbers:
        said(i)
        draw = random.Random(f"{kind.name} {i}")
        _afresh(sound, folder)
        victim, argv = draw.choice(victims), draw.choice(kind.commands)
        data = (sound / victim).read_bytes()
        only_a_bit = draw.random() < kind.flips
        (folder / victim).write_bytes(flip(data, draw) if only_a_bit else (kind.harm or harm)(data, draw))
        end = run_command(argv, folder)
        faults = end.faults(names)
        if list(folder.rglob(CANARY)):
            faults.append("ran what the file said")
        if end.code == 0 and kind.answer is not None and kind.answer(folder, end.out) != expected[argv]:
            faults.append("took another file for its own")
        tally.inputs += 1
        tally.ends[end.code] += 1
        tally.slowest = max(tally.slowest, (end.cpu, i))
        tally.largest = max(tally.largest, (end.grown - 2 * len(data), i))
        tally.faults += [f"{kind.name} {i}: {victim}: {' '.join(argv[:2])}: {fault}" for fault in faults]
    shutil.rmtree(folder, ignore_errors=True)
    return tally


def answers(kind: Kind, sound: Path, folder: Path) -> dict[tuple[str, ...], object]:
    """The result of each command on the valid files, which it must be able to read."""
    results: dict[tuple[str, ...], object] = {}
    for argv in kind.commands:
        _afresh(sound, folder)
        end = run_command(argv, folder)
        assert end.code == 0 and not end.faults([]), (kind.name, argv, end)
        results[argv] = kind.answer(folder, end.out) if kind.answer is not None else None
    return results


def _afresh(sound: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)


def _reset_peak() -> int:
    """Reset the peak, and return the resident memory in bytes; 0 if the system does not report it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _resident("VmRSS")
    except OSError:
        return 0


def _peak() -> int:
    try:
        return _resident("VmHWM")
    except OSError:
        return 0


def _resident(what: str) -> int:
    match = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) * 1024 if match else 0


def input_numbers(default: int) -> range:
    """The input numbers of a campaign; EMBTRAIN_FUZZ=FIRST:COUNT selects others."""
    first, _, count = os.environ.get("EMBTRAIN_FUZZ", "").partition(":")
    return range(int(first or 0), int(first or 0) + int(count or default))


def numbers_of(path: Path) -> Iterator[object]:
    """Rows of a JSON file without those that differ between runs."""
    for row in json.loads(path.read_text()):
        if row["benchmark"] != "training":
            yield row
