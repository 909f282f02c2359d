"""Where corpora/, evals/ and configs/ lie: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

import re
from pathlib import Path

from embtrain.common.errors import UsageError, did_you_mean

KINDS = ("corpora", "evals", "configs")
MAX_LISTED = 20  # in an error; where there are more, the command that lists them is named instead


def folder(kind: str) -> Path:
    """The folder that holds the recipes of one kind (corpora, evals or configs)."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {KINDS}")
    package = Path(__file__).resolve().parents[1]  # embtrain
    inside = package / kind
    if inside.is_dir():
        return inside
    checkout = package.parent
    # Without the pyproject test a wheel could find a stranger's site-packages/configs.
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        return checkout / kind
    raise UsageError(f"the folder {kind}/ of embtrain is missing: reinstall the package")


def names(kind: str, below: str = "") -> list[str]:
    """Names of the YAML files in a shipped folder (`below` is a sub-folder such as 'negatives')."""
    return sorted(path.stem for path in (folder(kind) / below).glob("*.yaml"))


def path(kind: str, name: str, below: str = "") -> Path:
    """The YAML file `name` of one kind; UsageError with the nearest name where there is none."""
    known = names(kind, below)
    if name not in known:
        hint = _names_by_description(
            name, [folder(kind) / below / f"{strategy}.yaml" for strategy in known]
        ) or did_you_mean(name, known)
        fits = len(known) <= MAX_LISTED
        listing = f"there are: {', '.join(known)}" if fits else f"embtrain list names all {len(known)}"
        raise UsageError(f"no {below or kind} named {name!r}{hint}; {listing}")
    return folder(kind) / below / f"{name}.yaml"


def _names_by_description(word: str, files: list[Path]) -> str:
    """The names of files whose first line says the word: another tool's name for a strategy often stands there."""
    matches = [file.stem for file in files
             if word.lower() in re.findall(r"\w+", file.read_text(encoding="utf-8").partition("\n")[0].lower())]
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if 0 < len(matches) <= 3 else ""
