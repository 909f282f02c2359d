"""Records passed between data, models, sources and losses. All tensor shapes are documented here.

B examples of a batch · K negatives of a draw · V candidates · D dimensions ·
G draws: B, or fewer if the rows of a window, block or batch share one ·
R scored rows: B, or fewer if rows with the same query and the same draw are scored once.

A higher score is always better. Only Query.vectors and the scores in LossInput carry a gradient.

examples.py   examples of a batch and their queries
negatives.py  the draws of a source
losses.py     the input of a loss and its result
problem.py    the facts of a problem, a view of the model, and scores of evaluations
"""

from embtrain.common.types.examples import Batch, Query, first_occurrence
from embtrain.common.types.losses import LossInput, LossOutput, WholeTable
from embtrain.common.types.negatives import GENERATOR, NOISE, ORIGINS, PROBE, SYNTHETIC, Negatives
from embtrain.common.types.problem import ModelView, ProblemSpec, Score, WordVectors

__all__ = [
    "GENERATOR",
    "NOISE",
    "ORIGINS",
    "PROBE",
    "SYNTHETIC",
    "Batch",
    "LossInput",
    "LossOutput",
    "ModelView",
    "Negatives",
    "ProblemSpec",
    "Query",
    "Score",
    "WholeTable",
    "WordVectors",
    "first_occurrence",
]
