"""Pickles that leave a mark when executed, in every file format that can contain them."""

from __future__ import annotations

import gzip
import io
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np

from helpers.hostile import CANARY, ENDS, PICKLE, Kind, answers, run_command


class Canary:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os
        return os.system, (f"touch {CANARY}",)


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([Canary()], dtype=object), allow_pickle=True)
    return out.getvalue()


def _npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, x=np.array([Canary()], dtype=object))
    return out.getvalue()


def _torch() -> bytes:
    """A file like those of torch.save: a zip with data.pkl."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Canary(), 2))
        file.writestr("archive/version", b"3\n")
    return out.getvalue()


def _member() -> bytes:
    """A zip member that is a pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("x.txt", pickle.dumps(Canary()))
    return out.getvalue()


PICKLES: dict[str, bytes] = {
    "protocol 0": PICKLE, "protocol 2": pickle.dumps(Canary(), 2), "protocol 5": pickle.dumps(Canary(), 5),
    "packed": gzip.compress(pickle.dumps(Canary())), "npy": _npy(), "npz": _npz(), "torch": _torch(),
    "in a zip": _member(),
    "yaml": f"a: !!python/object/apply:os.system ['touch {CANARY}']\n".encode(),
}


def sung(kind: Kind, place: Path, each: int) -> int:
    """Replace each file of a kind by pickles of several formats in turn; return their number. None may be executed."""
    sorts = list(PICKLES)
    sound, folder = place / f"{kind.name}-sound", place / kind.name
    sound.mkdir()
    kind.make(sound)
    answers(kind, sound, folder)
    victims = sorted(path.relative_to(sound) for path in sound.glob(kind.harmed) if path.is_file())
    n = 0
    for victim in victims:
        for _ in range(each):
            name, argv = sorts[(n + len(kind.name)) % len(sorts)], kind.commands[n % len(kind.commands)]
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(sound, folder)
            (folder / victim).write_bytes(PICKLES[name])
            end = run_command(argv, folder)
            assert end.code in ENDS and "Traceback" not in end.err, (kind.name, victim, name, end)
            assert not list(folder.rglob(CANARY)), (kind.name, victim, name)
            n += 1
    return n
