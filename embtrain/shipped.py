"""Where corpora/, evals/ and configs/ lie: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

from embtrain.errors import UsageError

KINDS = ("corpora", "evals", "configs")


def folder(kind: str) -> Path:
    """The folder that holds the recipes of one kind (corpora, evals or configs)."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {KINDS}")
    package = Path(__file__).resolve().parent
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
    import difflib

    known = names(kind, below)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UsageError(f"no {below or kind} named {name!r}{hint}; there are: {', '.join(known)}")
    return folder(kind) / below / f"{name}.yaml"
