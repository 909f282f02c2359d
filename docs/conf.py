"""Configuration of the site (`make docs`). Neither building nor reading it needs the network."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))

import citations
import components

import embtrain

project = "embtrain"
release = version = embtrain.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "results/generated", "results/README.md", "results/comparisons"]
root_doc = "index"

html_theme = "furo"
html_extra_path = ["machines"]        # llms.txt and SKILL.md, next to index.html
html_title = "embtrain"
html_copy_source = html_show_sourcelink = html_show_copyright = html_show_sphinx = False
html_domain_indices = False

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
suppress_warnings = ["myst.header"]   # reports and included parts begin at a deeper level

autodoc_member_order = "bysource"
autodoc_mock_imports = ["pykeen"]  # the same page whether it is installed or not
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True


def literal(app: Any, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Convert a docstring in plain text to markup: escape prose, show paragraphs with indents or columns as code."""
    shown: list[str] = []
    for part in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if any(re.match(r" |.*\S {2,}\S", line) for line in part.split("\n")):
            shown += ["::", "", *("    " + line for line in part.split("\n")), ""]
        else:
            words = re.split(r"`([^`\n]+)`", part)
            escaped = [f"``{word}``" if i % 2 else re.sub(r"([\\*`|_<>])", r"\\\1", word)
                       for i, word in enumerate(words)]
            shown += ["".join(escaped), ""]
    lines[:] = "\n".join(shown).split("\n")


def link_citations(app: Any, docname: str, source: list[str]) -> None:
    """Link the keys of papers in a page to the bibliography."""
    if docname not in ("science/bibliography", "contributing/changes"):
        source[0] = citations.linked(source[0])


def fold_navigation(app: Any, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """List the pages of other sections by their section only: all pages on all pages took a third of a build."""
    if (full := context.get("toctree")) is not None:
        context["toctree"] = lambda **options: full(**(options | {"collapse": True}))


def setup(app: Any) -> None:
    components.write()
    app.connect("html-page-context", fold_navigation, priority=400)  # the theme reads it at 500
    app.connect("autodoc-process-docstring", literal)
    app.connect("source-read", link_citations)
