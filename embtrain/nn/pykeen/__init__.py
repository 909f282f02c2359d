"""Negative samplers and a training callback for PyKEEN. `register()` adds their names to PyKEEN's.

queries.py    positives as queries with one open side, candidates as triples
view.py       the scores of a PyKEEN model, as sources read them
samplers.py   the samplers: a source each, under PyKEEN's interface
callback.py   the callback: gives a sampler the model, and a source the costs of its negatives
"""

from embtrain.common.errors import UsageError

try:
    from embtrain.nn.pykeen.callback import EmbtrainTrainingCallback, register
    from embtrain.nn.pykeen.samplers import SAMPLERS, EmbtrainNegativeSampler
except ModuleNotFoundError as error:
    missing = str(error.name).partition(".")[0]
    raise UsageError(f"embtrain.nn.pykeen: {missing} is not installed; pip install 'embtrain[pykeen]'") from error

__all__ = ["SAMPLERS", "EmbtrainNegativeSampler", "EmbtrainTrainingCallback", "register"]
