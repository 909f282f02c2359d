"""PyKEEN's own tests of negative samplers, from its source archive, on the samplers of embtrain.

The archive is pinned by its hash. The tests run in a process of their own, because PyKEEN's package is named `tests`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

VERSION, SHA256 = "1.11.1", "702cb807c354a0d2fce0f0593db46e1fe15fba2a37e92bbb18cd1b9d0a85fe13"
ROOT = Path(__file__).resolve().parents[3]
OURS = '''
import unittest_templates
from pykeen.models import DistMult
from pykeen.training import SLCWATrainingLoop
from tests.test_sampling import cases, test_negative_samplers

from embtrain.nn.pykeen import SAMPLERS, EmbtrainNegativeSampler, EmbtrainTrainingCallback


class EmbtrainCase(cases.NegativeSamplerGenericTestCase):
    def _pre_instantiation_hook(self, kwargs):
        kwargs = super()._pre_instantiation_hook(kwargs=kwargs)
        model = DistMult(triples_factory=self.triples_factory, embedding_dim=8, random_seed=0)
        loop = SLCWATrainingLoop(model=model, triples_factory=self.triples_factory, negative_sampler=self.cls)
        EmbtrainTrainingCallback().register_training_loop(loop)
        return {**kwargs, **loop.negative_sampler_kwargs}

    def test_entity_corruption(self):
        test_negative_samplers._verify_entity_corruption(self.instance, self.positive_batch)


for sampler in SAMPLERS:
    name = f"{sampler.__name__}Test"
    globals()[name] = type(name, (EmbtrainCase,), {"cls": sampler, "__module__": __name__})
del EmbtrainCase, sampler


class EmbtrainMetaTest(unittest_templates.MetaTestCase):
    base_cls = EmbtrainNegativeSampler
    base_test = cases.NegativeSamplerGenericTestCase
'''


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the source archive of PyKEEN, once its hash is correct."""
    for module in ("pykeen", "unittest_templates"):
        if find_spec(module) is None:
            pytest.skip(f"peers: {module} is not installed; pip install 'embtrain[peers]'")
    folder = tmp_path_factory.mktemp("pykeen")
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                           "--no-binary", "pykeen", "-d", str(folder), f"pykeen=={VERSION}"], cwd=folder,
                          capture_output=True, text=True, check=False)
    path = folder / f"pykeen-{VERSION}.tar.gz"
    if not path.is_file():
        pytest.skip(f"peers: the source archive of PyKEEN {VERSION} cannot be downloaded: "
                    f"{' '.join(done.stderr.split())[-200:]}")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
    with tarfile.open(path) as opened:
        opened.extractall(folder, filter="data")
    return folder / f"pykeen-{VERSION}"


def test_the_samplers_pass(archive: Path) -> None:
    (archive / "tests" / "test_sampling" / "test_embtrain.py").write_text(OURS, encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(archive), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
                           "--rootdir", str(archive), "tests/test_sampling/test_embtrain.py"], cwd=archive,
                          capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "31 passed" in done.stdout, done.stdout[-500:]
