"""Names and first lines of models, sources and losses, read from their files: their import would take seconds."""

from __future__ import annotations

import ast
import importlib.metadata
from pathlib import Path

import embtrain
from embtrain.common import registry

KINDS = {"models": "models", "sources": "negatives", "losses": "losses"}  # kind -> package of embtrain
_NAMED = "\n    name"  # in every file that defines a component


def about_components(kind: str) -> dict[str, str]:
    """Return {name: first line of its module} of every component of a kind, sorted by name.

    Components of other distributions and of EMBTRAIN_PLUGINS are imported, because only an import shows whether they
    can be used.
    """
    package = KINDS[kind]
    is_extended = importlib.metadata.entry_points(group=f"embtrain.{package}") or registry.plugin_files()
    about = None if is_extended else _read(Path(embtrain.__file__).parent / package)
    if about is None:
        # Lazy, because it imports PyTorch: needed only for other distributions, and to report a file that is damaged.
        from embtrain.experiment.catalogue import combinations

        about = {name: combinations.about(owner) for name, owner in combinations.component_classes(kind).items()}
    return dict(sorted(about.items()))


def _read(package: Path) -> dict[str, str] | None:
    """Names and first lines in the files of a package; None if one is not Python."""
    about: dict[str, str] = {}
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if _NAMED in text:
            try:
                tree = ast.parse(text)
            except SyntaxError:
                return None
            about |= dict.fromkeys(_names(tree), (ast.get_docstring(tree) or "").split("\n")[0].rstrip(":"))
    return about


def _names(tree: ast.Module) -> list[str]:
    """The values of `name = "..."` and `name: ClassVar[str] = "..."` in the classes of a module."""
    lines = [line for node in tree.body if isinstance(node, ast.ClassDef) for line in node.body]
    values = [line.value for line in lines if (isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "name")
              or (isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "name"
                  and ast.unparse(line.annotation).startswith("ClassVar"))]
    return [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
