"""Losses with drawn negatives as PyTorch modules, for programs that have a training loop of their own.

    loss = embtrain.nn.SampledSoftmax("cluster", num_classes=V, num_sampled=64)
    loss(query, weight, target).backward()

losses.py      SampledSoftmax, RankingNCE, NCE, NegativeSampling, Softmax
module.py      SampledLoss: their base, with any loss and any source
candidates.py  negatives of the user's own
rows.py        queries and targets as rows
table.py       the user's output layer as a model
source.py      the source, its counts, and the loss
state.py       the state of a module as a tensor, and whether it fits
duplicates.py  copies and pickles of a module, with the source object of the user
arguments.py   checks of arguments, and their names in messages
pykeen         negative samplers and a training callback for PyKEEN
"""

from embtrain.nn.candidates import Candidates
from embtrain.nn.losses import NCE, NegativeSampling, RankingNCE, SampledSoftmax, Softmax
from embtrain.nn.module import SampledLoss

__all__ = ["NCE", "Candidates", "NegativeSampling", "RankingNCE", "SampledLoss", "SampledSoftmax", "Softmax"]
