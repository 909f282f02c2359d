"""Modules of gensim under the prefix `embtrain.`: one object under two names, or embtrain's own file."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gensim
import pytest
from helpers.looped import looped

import embtrain.gensim

IMPORTS = """
import embtrain
assert not [name for name in sys.modules if "gensim" in name] and sys.meta_path == before
import embtrain.gensim.downloader as api
from embtrain.gensim.corpora.sharded_corpus import ShardedCorpus
from embtrain.gensim.models.poincare import PoincareModel
from embtrain.gensim.scripts.glove2word2vec import glove2word2vec
from embtrain.gensim.test.utils import common_texts
from embtrain.gensim.models.callbacks import CallbackAny2Vec
from embtrain.gensim.utils import tokenize
import gensim.corpora.sharded_corpus, gensim.downloader, gensim.models.poincare, gensim.scripts.glove2word2vec
assert api is gensim.downloader and glove2word2vec is gensim.scripts.glove2word2vec.glove2word2vec
assert common_texts is gensim.test.utils.common_texts and tokenize is gensim.utils.tokenize
assert PoincareModel is gensim.models.poincare.PoincareModel
assert ShardedCorpus is gensim.corpora.sharded_corpus.ShardedCorpus
assert CallbackAny2Vec is gensim.models.callbacks.CallbackAny2Vec
for name, module in [*sys.modules.items()]:
    if name.startswith("embtrain.gensim."):
        theirs = sys.modules.get(name.removeprefix("embtrain."))
        is_ours = module.__file__.startswith(embtrain.__path__[0])
        assert (module is theirs) != is_ours, name
        assert module.__name__ == module.__spec__.name == (name if is_ours else theirs.__name__), name
"""


def test_modules_that_gensim_does_not_import_are_found() -> None:
    """In a fresh process, because other tests import modules of gensim."""
    subprocess.run([sys.executable, "-c", f"import sys\nbefore = [*sys.meta_path]\n{IMPORTS}"], check=True)


def test_a_script_of_gensim_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "embtrain.gensim.scripts.glove2word2vec", "--help"], check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0 and "--output OUTPUT" in done.stdout, done.stderr


@pytest.fixture
def more_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that gensim seems to have: `gensim.added_NAME`, and `gensim.added`, a package."""
    monkeypatch.setattr(gensim, "__path__", [*gensim.__path__, str(tmp_path)])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if "gensim.added" in name:
            del sys.modules[name]
    for package in (gensim, embtrain.gensim):
        for name in [name for name in vars(package) if name.startswith("added")]:
            delattr(package, name)


def test_circular_imports_use_one_module(more_modules: Path) -> None:
    (more_modules / "added_a.py").write_text("import embtrain.gensim.added_b as b\nclass A: pass\n")
    (more_modules / "added_b.py").write_text("import embtrain.gensim.added_a as a\nimport gensim.added_a as same\n")
    a = importlib.import_module("embtrain.gensim.added_a")
    assert a is sys.modules["gensim.added_a"] is a.b.a is a.b.same and a.b is sys.modules["gensim.added_b"]
    assert (a.__name__, a.__spec__.name, a.A.__module__) == ("gensim.added_a",) * 3


def test_an_error_in_a_module_of_gensim_is_its_own(more_modules: Path) -> None:
    (more_modules / "added_a.py").write_text("import package_that_is_not_installed\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match=r"^No module named 'package_that_is_not_installed'$"):
            importlib.import_module("embtrain.gensim.added_a")
        assert not {"gensim.added_a", "embtrain.gensim.added_a"} & {*sys.modules}


def test_a_reload_keeps_the_module(more_modules: Path) -> None:
    file = more_modules / "added_a.py"
    file.write_text("value = 1\n")
    module = importlib.import_module("embtrain.gensim.added_a")
    file.write_text("value = 1_000\n")
    assert importlib.reload(module) is module is importlib.import_module("gensim.added_a") and module.value == 1_000


def test_modules_of_packages_are_found_once(more_modules: Path) -> None:
    """A finder of files would load a second module from the folder of the package."""
    (package := more_modules / "added").mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text("class Inner: pass\n")
    inner = importlib.import_module("embtrain.gensim.added.inner")
    assert inner is importlib.import_module("gensim.added.inner")
    assert pickle.loads(pickle.dumps(inner.Inner)) is inner.Inner
    names = [module.name for module in pkgutil.walk_packages(gensim.added.__path__, "embtrain.gensim.added.")]
    assert names == ["embtrain.gensim.added.inner"]


def test_a_module_without_a_spec_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs replace modules in their tests."""
    monkeypatch.setitem(sys.modules, "gensim.added_a", module := type(sys)("added_a"))
    monkeypatch.delitem(sys.modules, "embtrain.gensim.added_a", raising=False)
    assert importlib.import_module("embtrain.gensim.added_a") is module
    monkeypatch.delitem(sys.modules, "embtrain.gensim.added_a")
    del embtrain.gensim.added_a  # set by the import


@looped("name", ["nothing", "models.word3vec", "corpora.nothing", "utils.tokenize", "models.word2vec.inner",
                 "models.keyedvectors.nothing", "test.nothing.more"])
def test_a_module_that_gensim_lacks_too_is_named_as_imported(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'embtrain\.gensim\.") as caught:
        importlib.import_module(f"embtrain.gensim.{name}")
    assert caught.value.name and f"embtrain.gensim.{name}".startswith(caught.value.name)


def test_files_of_embtrain_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {module.name for module in pkgutil.walk_packages(embtrain.gensim.__path__, "embtrain.gensim.")}
    assert {"embtrain.gensim.models.word2vec", "embtrain.gensim.models.fasttext", "embtrain.gensim.saved"} <= ours
    for name in ours:
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, name, raising=False)
            spec = importlib.util.find_spec(name)
        assert spec and spec.origin and Path(spec.origin).is_relative_to(embtrain.__path__[0]), name


def test_a_second_import_of_the_package_adds_no_finder() -> None:
    n = len(sys.meta_path)
    importlib.reload(importlib.reload(sys.modules["embtrain.gensim.theirs"]) and embtrain.gensim)
    assert len(sys.meta_path) == n


def test_other_packages_are_left_to_their_finders() -> None:
    finder = sys.meta_path[[type(finder).__module__ for finder in sys.meta_path].index("embtrain.gensim.theirs")]
    for name in ("gensim.downloader", "embtrain.nothing", "embtrain.gensim", "numpy.nothing", "embtrain.gensimx.utils"):
        assert finder.find_spec(name, None, None) is None


@looped("name", ["a.b", ".", "utils.tokenize", "added_a", "added_a.b"])
def test_an_attribute_imports_no_module(name: str, more_modules: Path) -> None:
    """As gensim's packages, ours have the modules that were imported."""
    (more_modules / "added_a.py").write_text("import package_that_is_not_installed\n")
    assert not hasattr(embtrain.gensim, name) and not hasattr(embtrain.gensim.models, name)
    with pytest.raises(AttributeError, match=r"^module 'embtrain\.gensim' has no attribute "):
        getattr(embtrain.gensim, name)


REPLACED = ["gensim", "gensim.models", "gensim.models.word2vec", "gensim.models.fasttext"]  # with a file here
TRAINING = {"train_batch_any", "train_batch_cbow", "train_batch_sg", "train_epoch_cbow", "train_epoch_sg"}


@looped("package", REPLACED)
def test_public_names_are_those_of_gensim(package: str) -> None:
    """Except gensim's training, which would ignore the strategy."""
    theirs, ours = (importlib.import_module(f"{prefix}{package}") for prefix in ("", "embtrain."))
    names = {name for name in vars(theirs) if not name.startswith("_")}
    own = {name for name in names if getattr(ours, name, None) is not getattr(theirs, name)} - TRAINING
    assert own == {"gensim": {"models"}, "gensim.models": {"FastText", "Word2Vec", "fasttext", "word2vec"},
                   "gensim.models.word2vec": {"Word2Vec"},
                   "gensim.models.fasttext": {"FastText", "Word2Vec", "load_facebook_model", "load_facebook_vectors",
                                              "save_facebook_model"}}[package]
    assert all(getattr(ours, name).__module__.startswith("embtrain.") for name in own if name[0].isupper())
    assert not [name for name in TRAINING if hasattr(ours, name)]
    everything: dict[str, Any] = {}
    exec(f"from embtrain.{package} import *", everything)
    names = {name for name in names if f"{package}.{name}" not in sys.modules}  # may be imported after ours
    assert names - TRAINING <= {*everything} and not TRAINING & {*everything}
    assert all(value is getattr(ours, name) for name, value in everything.items() if name != "__builtins__")


def test_the_version_is_that_of_gensim() -> None:
    from embtrain.gensim import __version__

    assert __version__ == embtrain.gensim.__version__ == gensim.__version__
    assert not hasattr(embtrain.gensim.models, "__version__")
