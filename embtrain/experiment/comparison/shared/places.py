"""The folders of a comparison that several machines share."""

from __future__ import annotations

from pathlib import Path


def leases_in(folder: Path) -> Path:
    return folder / "join" / "leases"


def runs_in(folder: Path) -> Path:
    """Folder of the unfinished runs."""
    return folder / "join" / "runs"


def sessions_in(folder: Path) -> Path:
    """Folder with one file for each process that submits cells to an executor."""
    return folder / "join" / "sessions"


def agreed_in(folder: Path) -> Path:
    """Folder with the grid that all processes must have."""
    return folder / "join" / "grid"


def shared_folders(folder: Path) -> list[Path]:
    """All folders of this module, after the one that contains them."""
    return [folder / "join", *(place(folder) for place in (leases_in, runs_in, sessions_in, agreed_in))]
