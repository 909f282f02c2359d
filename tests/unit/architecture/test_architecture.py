"""Architecture rules: allowed imports and forbidden constructs.

Every checker is also run on planted violations, to show that it can fail.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from helpers.looped import looped

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "embtrain"

# Highest first. A module imports from lower floors and from its own package, never from a sibling or from above.
# `__init__` is embtrain/__init__.py: the names that `import embtrain` exports.
FLOORS = (
    ("__main__",),
    ("cli",),
    ("gensim", "nn", "testing"),
    ("__init__",),
    ("experiment",),
    ("report",),
    ("train", "evaluate"),
    ("models", "negatives", "losses", "data"),
    ("kernels",),
    ("common",),
)
FLOOR = {unit: level for level, units in enumerate(FLOORS) for unit in units}

STARTUP = {"torch", "numpy", "scipy", "gensim", "sklearn", "networkx", "matplotlib", "pydantic", "yaml", "pooch"}

# Readers that run code, and code built from text. Methods of these names are refused for any object.
FORBIDDEN_IMPORTS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "random"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {"extractall", "unsafe_load", "full_load", "unsafe_load_all", "full_load_all", "manual_seed_all"}
FORBIDDEN_DOTTED = {"torch.load", "torch.save", "torch.hub", "yaml.load", "yaml.load_all", "torch.manual_seed",
                    "torch.rand_like", "torch.randn_like", "torch.randint_like", "os.system", "os.popen"}
# PyTorch draws must name their generator, or they would use the global one.
TORCH_DRAWS = {"torch.rand", "torch.randn", "torch.randint", "torch.randperm", "torch.multinomial",
               "torch.bernoulli", "torch.normal"}
IN_PLACE_DRAWS = {"uniform_", "normal_", "exponential_", "bernoulli_", "random_", "geometric_", "cauchy_",
                  "log_normal_"}
GENSIM_PICKLES = {"KeyedVectors", "Word2Vec", "FastText", "Doc2Vec", "Dictionary", "WikiCorpus"}

# An XML namespace is a name, not an address; drawings inside a report need it.
HOST = re.compile(r"\b(?:https?|ftps?|s3|gs)://(?!www\.w3\.org/)[\w.-]+", re.IGNORECASE)
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|raise NotImplementedError\b(?! *\()", re.ASCII)
MOST_LINES = 300


@functools.cache
def parse(text: str) -> ast.Module:
    return ast.parse(text)


@pytest.fixture(autouse=True, scope="module")
def _forget_trees() -> Iterator[None]:
    """The trees of the package take a hundred megabytes."""
    yield
    parse.cache_clear()


# --- imports are declared -----------------------------------------------------------------------------------

def undeclared(package: Path, project: dict[str, Any]) -> set[str]:
    """Return third-party modules that a file imports and no dependency or extra of the project provides."""
    requirements = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = {re.split(r"[^\w.-]", text, maxsplit=1)[0].lower() for text in requirements}
    brought = {module for module, names in packages_distributions().items()
               if {re.sub(r"[-_.]+", "-", name).lower() for name in names} & declared}
    faults = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                faults |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                faults.add(str(node.module).split(".")[0])
    # Extras that are not installed; mlflow-skinny provides mlflow.
    absent = {module for name in declared for module in (name.replace("-", "_"), name.split("-")[0])}
    return faults - brought - absent - sys.stdlib_module_names - {package.name, "__future__"}


def test_every_imported_module_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert undeclared(PACKAGE, project) == set()
    without = {**project, "dependencies": [text for text in project["dependencies"] if "requests" not in text]}
    assert undeclared(PACKAGE, without) == {"requests"}


@pytest.mark.parametrize(("name", "least"), [("tqdm", (4, 66, 3)), ("requests", (2, 32, 4)), ("torch", (2, 8))])
def test_no_version_with_a_known_vulnerability_is_allowed(name: str, least: tuple[int, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (faults,) = (re.match(r"[\w-]+>=([\d.]+)", text) for text in project["dependencies"] if text.startswith(name))
    assert faults is not None and tuple(map(int, faults[1].split("."))) >= least


# --- floors ----------------------------------------------------------------------------------------------

def unit_of(module: str) -> str:
    """embtrain.negatives.adversarial.ace -> negatives; embtrain -> __init__."""
    return module.split(".")[1] if "." in module else "__init__"


def _is_fact(name: str) -> bool:
    """embtrain.__version__ and embtrain.__file__ are facts about the package, open to every floor."""
    return name.startswith("embtrain.__") and name.count(".") == 1


def imported(tree: ast.AST, module: str, is_package: bool, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Return (line, module of embtrain) of every import at any depth of a file, and of import_module("embtrain...")."""
    used = {dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    facts_only = all(_is_fact(name) for name in used if name.startswith("embtrain.") and name.count(".") == 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not (alias.name == "embtrain" and alias.asname is None and facts_only):
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")
            above = above[: len(above) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                if not _is_fact(name):
                    yield node.lineno, name if name in modules else base
        elif isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "import_module" and node.args:
            text = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield node.lineno, text.value.rstrip(".")


def module_name(path: Path, package: Path) -> str:
    parts = list(path.relative_to(package.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def broken_floors(package: Path) -> list[str]:
    """Return one line for every import that goes up or sideways and every module without a floor."""
    files = {module_name(path, package): path for path in sorted(package.rglob("*.py"))}
    faults = []
    for module, path in files.items():
        classes_here = unit_of(module)
        if classes_here not in FLOOR:
            faults.append(f"{path.name}: {classes_here} has no floor: give it one in FLOORS")
            continue
        tree = parse(path.read_text(encoding="utf-8"))
        for line, name in imported(tree, module, path.name == "__init__.py", set(files)):
            if name.split(".")[0] != package.name or unit_of(name) == classes_here:
                continue
            there = unit_of(name)
            if there not in FLOOR:
                faults.append(f"{module}:{line}: imports {name}, which has no floor")
            elif FLOOR[there] <= FLOOR[classes_here]:
                how = "is a sibling" if FLOOR[there] == FLOOR[classes_here] else "is above"
                faults.append(f"{module}:{line}: {classes_here} imports {name}, which {how}")
    return faults


def import_circle(package: Path) -> list[str]:
    """Return the modules of one import circle, the first one repeated at the end; empty if there is none.

    Counts imports at any depth of a file, also those for type checkers and inside functions.
    """
    files = {module_name(path, package): path for path in sorted(package.rglob("*.py"))}
    targets = {module: sorted({name for _, name in imported(parse(path.read_text(encoding="utf-8")), module,
                                                            path.name == "__init__.py", set(files))
                               if name in files and name != module}) for module, path in files.items()}
    finished: set[str] = set()

    def visit(module: str, above: list[str]) -> list[str]:
        if module in above:
            return [*above[above.index(module):], module]
        if module not in finished:
            for name in targets[module]:
                if circle := visit(name, [*above, module]):
                    return circle
            finished.add(module)
        return []

    return next(filter(None, (visit(module, []) for module in files)), [])


def plant(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "embtrain"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def test_imports_go_down_only() -> None:
    assert broken_floors(PACKAGE) == []


@pytest.mark.parametrize(("file", "text", "message"), [
    ("common/types.py", "from embtrain.models.base import Model\n", "is above"),
    ("common/types.py", "import embtrain.cli\n", "is above"),
    ("common/types.py", "from embtrain import cli\n", "is above"),
    ("common/types.py", "import embtrain\nembtrain.fit()\n", "is above"),
    ("common/types.py", "import embtrain as e\n", "is above"),
    ("common/types.py", "from embtrain import fit\n", "is above"),
    ("negatives/adversarial/ace.py", "def draw():\n    from embtrain.models import base\n", "is a sibling"),
    ("negatives/adversarial/ace.py", "from ...models.base import Model\n", "is a sibling"),
    ("negatives/adversarial/ace.py", "from ... import train\n", "is above"),
    ("negatives/__init__.py", "from ..losses import base\n", "is a sibling"),
    ("negatives/adversarial/ace.py", "if TYPE_CHECKING:\n    from embtrain.train import step\n", "is above"),
    ("train/engines/autograd.py", "import embtrain.evaluate.words.similarity as s\n", "is a sibling"),
    ("models/base.py", "import importlib\nimportlib.import_module('embtrain.negatives.every')\n", "is a sibling"),
    ("models/base.py", "from importlib import import_module\nimport_module(f'embtrain.report.{x}')\n", "is above"),
    ("helpers.py", "", "has no floor"),
])
def test_a_planted_import_is_found(tmp_path: Path, file: str, text: str, message: str) -> None:
    stones = {f"{unit}/base.py": "" for unit in ("models", "losses", "train", "evaluate")}
    package = plant(tmp_path, {"cli.py": "", "train/__init__.py": "", **stones, file: text})
    faults = broken_floors(package)
    assert len(faults) == 1 and message in faults[0], faults


def test_allowed_imports(tmp_path: Path) -> None:
    package = plant(tmp_path, {
        "cli.py": "import sys, typer\ndef fit():\n    from embtrain import experiment\n",
        "experiment.py": "from embtrain.train.engines.autograd import Step\nfrom embtrain import evaluate, report\n",
        "report.py": "import embtrain\nv = embtrain.__version__\n", "evaluate/__init__.py": "",
        "train/engines/autograd.py": "from ..state import metrics_log\nfrom ...common.types import Batch\n",
        "train/state/metrics_log.py": "import torch\nfrom embtrain.common.errors import UsageError\n",
        "common/types.py": "from embtrain import __version__\nfrom embtrain.common import errors\n",
        "common/errors.py": "",
    })
    assert broken_floors(package) == []


def test_no_imports_form_a_circle() -> None:
    assert import_circle(PACKAGE) == []


@pytest.mark.parametrize("text", ["from embtrain.train import a\n",
                                  "if TYPE_CHECKING:\n    from embtrain.train.a import A\n",
                                  "def f():\n    from . import a\n"])
def test_a_planted_circle_is_found(tmp_path: Path, text: str) -> None:
    files = {"train/__init__.py": "", "train/a.py": "from embtrain.train import b\n", "train/c.py": text}
    assert import_circle(plant(tmp_path, {**files, "train/b.py": "from embtrain.train import c\n"})) == [
        f"embtrain.train.{name}" for name in "abca"]
    assert import_circle(plant(tmp_path, {**files, "train/b.py": "import ast\n"})) == []


def test_the_command_line_starts_without_heavy_imports() -> None:
    code = f"import sys, embtrain.cli; print(*({STARTUP!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# --- forbidden constructs -------------------------------------------------------------------------------

def dotted(node: ast.AST) -> str:
    """Return a.b.c of an attribute; '' if it is no chain of names (a call keeps its last attribute)."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {word.arg: word.value for word in call.keywords if word.arg}


def _call_faults(call: ast.Call) -> Iterator[str]:
    name, words = dotted(call.func), _keywords(call)
    last = name.rpartition(".")[2]
    if name in FORBIDDEN_CALLS or last in FORBIDDEN_METHODS:
        yield f"{last}("
    if name in TORCH_DRAWS | {f"torch.{x}" for x in IN_PLACE_DRAWS} and "generator" not in words:
        yield f"{name} without generator="
    elif "." in name and last in IN_PLACE_DRAWS and "generator" not in words:
        yield f".{last} without generator="
    if last == "load" and name.split(".")[-2:-1] and name.split(".")[-2] in GENSIM_PICKLES:
        yield f"{name} reads a pickle"
    for word in ("allow_pickle", "shell"):
        if word in words and not (isinstance(words[word], ast.Constant) and words[word].value is False):
            yield f"{word}="


def forbidden(text: str, name: str = "<planted>") -> list[str]:
    """Return lines `line: forbidden construct` of one Python file."""
    faults: list[tuple[int, str]] = []
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            base = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            roots = {base.split(".")[0]} if base else {name.split(".")[0] for name in names}
            faults += [(node.lineno, f"import {root}") for root in roots & FORBIDDEN_IMPORTS]
            faults += [(node.lineno, f"{base}.{name}") for name in names if f"{base}.{name}" in FORBIDDEN_DOTTED]
        elif isinstance(node, ast.Attribute) and dotted(node) in FORBIDDEN_DOTTED:
            faults.append((node.lineno, dotted(node)))
        elif isinstance(node, ast.Call):
            faults += [(node.lineno, fault) for fault in _call_faults(node)]
    for number, line in enumerate(text.splitlines(), 1):
        faults += [(number, match) for rule in (HOST, UNFINISHED) for match in rule.findall(line)]
    return [f"{number}: {fault}" for number, fault in sorted(faults)]


@looped("line", [
    "import pickle", "from pickle import loads", "import joblib as j", "import random", "from random import choice",
    "x = yaml.load(file)", "from yaml import load", "x = yaml.unsafe_load(file)", "archive.extractall(folder)",
    "open_it(path).extractall()", "eval(text)", "exec(text)", "x = torch.load(path, weights_only=True)",
    "from torch import load", "np.load(path, allow_pickle=True)", "np.load(path, allow_pickle=flag)",
    "subprocess.run(line, shell=True)", "os.system(line)", "KeyedVectors.load(path)", "gensim.models.Word2Vec.load(p)",
    "torch.manual_seed(1)", "torch.rand(3)", "torch.randint(3, (2,))", "torch.rand_like(x)", "x.uniform_(0, 1)",
    "self.table.weight.data.normal_()", "URL = 'https://example.org/a'", "# see http://example.org", "# TODO later",
    "raise NotImplementedError",
])
def test_a_planted_line_is_found(line: str) -> None:
    assert len(forbidden(f"'''Doc.'''\n{line}\n")) == 1


@looped("line", [
    "model.eval()", "re.compile('a')", "yaml.safe_load(text)", "np.load(path, allow_pickle=False)",
    "torch.rand(3, generator=g)", "x.uniform_(0, 1, generator=g)", "rng.random(3)", "from numpy.random import PCG64",
    "KeyedVectors.load_word2vec_format(path)", "url.startswith('https://')", "SVG = 'http://www.w3.org/2000/svg'",
    "'''No pickle, no yaml.load( and no eval( here.'''", "safetensors.torch.load_file(path)",
])
def test_an_allowed_line(line: str) -> None:
    assert forbidden(line) == []


def test_the_source_contains_nothing_forbidden() -> None:
    faults = [f"{path.relative_to(ROOT)}:{fault}" for path in sorted(PACKAGE.rglob("*.py"))
              for fault in forbidden(path.read_text(encoding="utf-8"), str(path))]
    assert faults == []


def matplotlib_imports(package: Path) -> list[str]:
    """Return lines `path:line` that import matplotlib outside the module that silences it."""
    faults = []
    for path in sorted(package.rglob("*.py")):
        if (place := path.relative_to(package).as_posix()) == "report/charts/quiet.py":
            continue
        for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
            names = ([node.module or ""] if isinstance(node, ast.ImportFrom) else
                     [alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
            faults += [f"{place}:{node.lineno}" for name in names if name.split(".")[0] == "matplotlib"]
    return faults


@looped("line", ["import matplotlib", "from matplotlib.axes import Axes", "import re, matplotlib.figure as f",
                 "def draw():\n    import matplotlib"])
def test_a_planted_import_of_matplotlib_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "report/charts").mkdir(parents=True, exist_ok=True)
    for name in ("other.py", "quiet.py"):
        (tmp_path / "report/charts" / name).write_text(f"{line}\n")
    assert [found.partition(":")[0] for found in matplotlib_imports(tmp_path)] == ["report/charts/other.py"]


def test_matplotlib_is_imported_in_one_module() -> None:
    """Elsewhere its import would warn about a home folder that cannot be written, also under --quiet."""
    assert matplotlib_imports(PACKAGE) == []


# Libraries, as Lightning and transformers, change the default dtype and device of PyTorch while they call embtrain.nn.
LIBRARY = ("common", "kernels", "losses", "models", "negatives", "nn")
FLOAT_FACTORIES = {"zeros", "ones", "empty", "full", "rand", "randn", "eye", "linspace", "tensor", "as_tensor",
                   "sparse_coo_tensor"}
FACTORIES = FLOAT_FACTORIES | {"arange", "randint", "randperm"}


def by_default(text: str) -> list[str]:
    """Return calls that make a tensor of the default dtype or on the default device, which is that of a parameter."""
    calls = [node for node in ast.walk(parse(text)) if isinstance(node, ast.Call)]
    parameters = [argument for call in calls if dotted(call.func) == "nn.Parameter" for argument in call.args]
    faults = []
    for call in calls:
        package, _, name = dotted(call.func).rpartition(".")
        rules = (("device", call not in parameters), ("dtype", name in FLOAT_FACTORIES))
        required = {word for word, is_required in rules if is_required}
        if package == "torch" and name in FACTORIES and (missing := required - _keywords(call).keys()):
            faults.append(f"{call.lineno}: torch.{name} without {', '.join(sorted(missing))}")
    return faults


@looped("line", ["torch.zeros(3)", "torch.zeros(3, device=d)", "torch.tensor([1], dtype=d)", "torch.arange(3)",
                 "nn.Parameter(torch.zeros(3))", "nn.Parameter(torch.zeros(3, dtype=d) * 2)"])
def test_a_planted_default_is_found(line: str) -> None:
    assert len(by_default(line)) == 1


@looped("line", ["torch.zeros(3, dtype=d, device=e)", "torch.arange(3, device=e)", "x.new_zeros(3)",
                 "nn.Parameter(torch.zeros(3, dtype=d))", "torch.zeros_like(x)"])
def test_an_allowed_factory(line: str) -> None:
    assert by_default(line) == []


def test_every_new_tensor_names_its_dtype_and_device() -> None:
    paths = [path for folder in LIBRARY for path in sorted((PACKAGE / folder).rglob("*.py"))]
    faults = [f"{path.relative_to(ROOT)}:{fault}" for path in paths for fault in by_default(path.read_text("utf-8"))]
    assert faults == []


def test_files_have_at_most_300_lines() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
             for kind in ("*.py", "*.h", "*.cpp") for path in PACKAGE.rglob(kind)}
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}
    assert [name for name in lines if Path(name).stem in ("utils", "util", "common", "helpers", "misc")] == []


# --- an abstract method names itself ----------------------------------------------------------------------

def wrong_names(text: str) -> list[str]:
    """Return lines `METHOD names OTHER` of methods whose error for a missing implementation names another one."""
    faults = []
    for method in ast.walk(parse(text)):
        if isinstance(method, ast.FunctionDef):
            for node in ast.walk(method):
                named = []
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    named = re.findall(r"does not implement (\w+)", node.value)
                elif isinstance(node, ast.Call) and dotted(node.func).endswith("AbstractMethod"):
                    named = [ast.literal_eval(node.args[1])]
                faults += [f"{method.name} names {name}" for name in named if name != method.name]
    return faults


def test_abstract_methods_name_themselves() -> None:
    assert [f"{path.relative_to(ROOT)}: {fault}" for path in sorted(PACKAGE.rglob("*.py"))
            for fault in wrong_names(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("error", ["TypeError(f'{name} does not implement pick')", "AbstractMethod(self, 'pick')"])
def test_a_wrong_name_of_an_abstract_method_is_found(error: str) -> None:
    assert wrong_names(f"def select(self):\n    raise {error}\n") == ["select names pick"]
    assert wrong_names(f"def pick(self):\n    raise {error}\n") == []


# --- no class is split to keep files short ------------------------------------------------------------

def split_classes(package: Path) -> list[str]:
    """Return one line for every class that reads attributes of `self` which only its one subclass sets.

    This class cannot be used or read without the other half. Names that the package defines twice are skipped.
    """
    classes, subclasses = dict[str, list[ast.ClassDef]](), dict[str, list[ast.ClassDef]]()
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
                for base in node.bases:
                    subclasses.setdefault(_class_name(base), []).append(node)

    def all_set(node: ast.ClassDef) -> set[str]:
        bases = chain(*(classes.get(_class_name(base), []) for base in node.bases))
        return _own_attributes(node)[1].union(*map(all_set, bases))

    faults = []
    for name, (base, *others) in sorted(classes.items()):
        halves = subclasses.get(name, [])
        if len(halves) == 1 and not others:
            missing = (_own_attributes(base)[0] - all_set(base)) & _own_attributes(halves[0])[1]
            if missing:
                faults.append(f"{name}: reads {', '.join(sorted(missing))}, which {halves[0].name} sets; make the two "
                              "one class, or parts that are composed")
    return faults


def _class_name(node: ast.expr) -> str:
    """Return the base of a class without its module and type arguments."""
    return dotted(node.value if isinstance(node, ast.Subscript) else node).rpartition(".")[2]


def _own_attributes(node: ast.ClassDef) -> tuple[set[str], set[str]]:
    """Return the attributes of `self` that a class reads, and those that it sets on `self` or in its body."""
    read, written = set[str](), set[str]()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
            (read if isinstance(part.ctx, ast.Load) else written).add(part.attr)
    has_fields = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            written.add(part.name)
        elif isinstance(part, ast.Assign):
            written |= {ast.unparse(target) for target in part.targets}
        elif isinstance(part, ast.AnnAssign) and (part.value is not None or has_fields):
            written.add(ast.unparse(part.target))
    return read, written


def test_no_class_is_split_by_inheritance() -> None:
    assert split_classes(PACKAGE) == []


HALF = "class Half:\n    table: list\n\n    def first(self):\n        return self.table[0]\n\n\n"


@pytest.mark.parametrize(("source", "n"), [
    (HALF + "class Whole(Half):\n    def __init__(self):\n        self.table = []\n", 1),
    (HALF + "class Whole(Half):\n    table = []\n", 1),
    (HALF + "class Whole(Half):\n    pass\n", 0),                                                    # sets nothing
    (HALF + "class Whole(Half):\n    table = []\n\n\nclass Other(Half):\n    table = [1]\n", 0),     # a real base
    (HALF.replace("table: list", "table: list = [1]") + "class Whole(Half):\n    table = []\n", 0),   # a default
    ("@dataclass\n" + HALF + "class Whole(Half):\n    table = []\n", 0),                             # a field
])
def test_a_split_class_is_found(source: str, n: int, tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text(source)
    assert len(split_classes(tmp_path)) == n


# --- a folder can be read at a glance ---------------------------------------------------------------------------

MAX_ENTRIES, MAX_MAP_LINES = 14, 15
PRESCRIBED = {"__init__.py", "__main__.py", "py.typed"}   # Python prescribes these names
# A name of a map: at the beginning of a line or of a second column, before two blanks or more.
MAP_NAMES = re.compile(r"(?:^ *|  +)((?:\w+(?:\.py|/)?)(?:, \w+(?:\.py|/)?)*)(?=  +\S)", re.MULTILINE)


def entries(folder: Path) -> set[str]:
    """Files and folders of a folder, without those that Python prescribes, builds and caches."""
    return {path.name for path in folder.iterdir()
            if path.name not in PRESCRIBED | {"__pycache__"} and path.suffix not in (".so", ".pyc")
            and not path.name.startswith(".")}


def full_folders(package: Path) -> list[str]:
    """One line for every folder with more than MAX_ENTRIES entries, folders of C++ files included."""
    folders = [package, *(path for path in package.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    return [f"{path.relative_to(package.parent)}: {len(entries(path))} entries" for path in sorted(folders)
            if len(entries(path)) > MAX_ENTRIES]


def wrong_maps(package: Path) -> list[str]:
    """One line for every `__init__` whose docstring is missing or long, or omits, repeats or invents an entry."""
    faults = []
    for path in sorted(package.rglob("__init__.py")):
        doc = ast.get_docstring(parse(path.read_text(encoding="utf-8"))) or ""
        listed = [name.rstrip("/").removesuffix(".py")
                  for names in MAP_NAMES.findall(doc) for name in names.split(", ")]
        named = set(listed)
        present = {name.removesuffix(".py") for name in entries(path.parent)}
        where = path.relative_to(package.parent)
        faults += [f"{where}: does not name {name}" for name in sorted(present - named)]
        faults += [f"{where}: names {name}, which does not exist" for name in sorted(named - present)]
        faults += [f"{where}: names {name} {n} times" for name, n in sorted(Counter(listed).items()) if n > 1]
        if not 1 <= len(doc.splitlines()) <= MAX_MAP_LINES:
            faults.append(f"{where}: docstring of {len(doc.splitlines())} lines")
    return faults


def test_no_folder_is_too_full() -> None:
    assert full_folders(PACKAGE) == []


def test_packages_map_their_folders() -> None:
    assert wrong_maps(PACKAGE) == []


def test_a_full_folder_is_found(tmp_path: Path) -> None:
    names = [f"source/{i}.cpp" for i in range(MAX_ENTRIES)]
    package = plant(tmp_path, dict.fromkeys([*names, "source/a.so", "source/__pycache__/a.pyc", "py.typed"], ""))
    assert full_folders(package) == []
    (package / "source/one_more.h").write_text("")
    assert full_folders(package) == ["embtrain/source: 15 entries"]


@pytest.mark.parametrize(("text", "faults"), [
    ("A map.\n\na.py  one\nb/    two\n", []), ("A map.\n\n    a  one file    b/  two\n", []),
    ("A map.\n\na.py, b  two\n", []),
    ("A map of a and b.\n\na.py  one\n", ["does not name b"]),
    ("A map.\n\na.py  one\nb     two\nc.py  three\n", ["names c, which does not exist"]),
    ("A map.\n\na.py  one file    b/  two\na     three\n", ["names a 2 times"]),
    ("A map.\n\na.py  one\nb     two" + "\n." * 12, ["docstring of 16 lines"]),
    ("", ["does not name a", "does not name b", "docstring of 0 lines"]),
])
def test_a_wrong_map_is_found(tmp_path: Path, text: str, faults: list[str]) -> None:
    files = dict.fromkeys(["a.py", "b/c.cpp", "_core.so", "py.typed"], "")
    package = plant(tmp_path, {"__init__.py": f'"""{text}"""', **files})
    assert wrong_maps(package) == [f"embtrain/__init__.py: {fault}" for fault in faults]


def test_a_folder_of_runs_does_not_change_the_order_of_imports(tmp_path: Path) -> None:
    """`make fit` creates runs/, and the tests have a module of that name."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (tmp_path / "some.py").write_text("import numpy\nfrom runs import fit\n\nimport embtrain\n\n"
                                      "print(numpy, fit, embtrain)\n")
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "I", "."], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
