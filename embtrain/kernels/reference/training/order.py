"""The update of order embeddings [vendrov2016], in NumPy: concepts as points, ordered coordinate by coordinate.

A hypernym is at most its hyponyms in every coordinate. An example has a concept g, a target t that is a hypernym of g
(slot 0, sign +) or a hyponym of g (slot 1, sign −), and K negatives j. All are rows of one table x (n, D) of n concepts
with nonnegative coordinates v. A candidate c is in order with g if ±(v_c − v_g) ≤ 0 in every coordinate, with the sign
of the slot. Its energy E_c is 0 then, and the squared violation otherwise:

    v_i = x_i, or |x_i| with `abs`        z_c = max(0, ±(v_c − v_g))        E_c = ‖z_c‖²        score s_c = −E_c

The loss of an example, summed over the negatives j that are not masked, with weights w_j and α, η = `margin`:

    order   (absolute hinge)    L = E_t + Σ_j w_j max(0, α − E_j)        ∂L/∂E_t = 1
    margin  (pairwise hinge)    L = Σ_j w_j max(0, η + E_t − E_j)        ∂L/∂E_t = Σ_j w_j over the active hinges

In both, ∂L/∂E_j = −w_j if the hinge of j is active (positive), and 0 otherwise. With ∂E_c/∂v_c = ±2 z_c = −∂E_c/∂v_g,
all gradients of an example are evaluated before its update, and those of a repeated concept are summed.

    SGD            x ← x − lr ∂L/∂x
    row-Adagrad    acc ← acc + mean_d (∂L/∂x_d)²,  x ← x − lr ∂L/∂x / (√acc + 1e-10),  one accumulator per row
    projection     x ← max(0, x), after either and only without `abs`

Examples are updated one after the other, in float64. kernels/training/order.py runs this file if the compiled core, the
C++ library, is missing; the tests compare the two.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.pairs import OrderLossSpec, PairRows
from embtrain.kernels.core.tables import NegativeBatch, Table
from embtrain.kernels.reference.training.rows import draw_terms, false_negative_pairs, update_row


def update(table: Table, rows: PairRows, negatives: NegativeBatch, loss_spec: OrderLossSpec,
           lr: float) -> tuple[float, np.ndarray]:
    """Update the table (n, D) in place by B examples. Returns the sum of their losses and the scores −E_j (B, K).

    `negatives.ids` is (G, K): example i reads draw i // rows_per_draw, where rows_per_draw ≥ 1 (`negatives.share`) is
    the number of examples that share K negatives. A negative is masked, that is left out of the loss, in three cases:
    its (example, column) pair is a column of `negatives.false_negatives` (2, N), its weight is 0, or it equals the
    target and `mask_target` is set.
    """
    x, n_negatives, rows_per_draw = table.x, negatives.ids.shape[1], negatives.share
    is_pairwise = loss_spec.loss == "margin"
    false_negatives = false_negative_pairs(negatives)
    scores, loss = np.zeros((len(rows.concept), n_negatives)), 0.0

    def vector(i: int) -> np.ndarray:
        """Return v_i (D,)."""
        return np.abs(x[i].astype(np.float64)) if loss_spec.abs else x[i].astype(np.float64)

    def dv_dx(i: int) -> np.ndarray | float:
        """Return ∂v_i/∂x_i: (D,), or 1."""
        return np.sign(x[i].astype(np.float64)) if loss_spec.abs else 1.0

    for example, (g, target, slot) in enumerate(zip(*(field.tolist() for field in rows), strict=True)):
        draw, sign = example // rows_per_draw, 1 - 2 * slot
        candidates = [target, *negatives.ids[draw].tolist()]                    # the target first, then K negatives
        z = [np.maximum(sign * (vector(c) - vector(g)), 0) for c in candidates]
        energy = np.array([(z_c * z_c).sum() for z_c in z])                     # (1 + K,)
        scores[example] = -energy[1:]
        weight, is_kept, _, _ = draw_terms(negatives, false_negatives, target, example, draw)
        threshold = loss_spec.margin + (energy[0] if is_pairwise else 0.0)      # α, or η + E_t
        hinge = np.where(is_kept, weight * np.maximum(threshold - energy[1:], 0), 0.0)
        loss += hinge.sum() + (0.0 if is_pairwise else energy[0])
        active_weight = np.where(hinge != 0, weight, 0.0)
        dloss_denergy = [active_weight.sum() if is_pairwise else 1.0, *(-active_weight)]
        gradients: dict[int, np.ndarray] = {}                                   # of each concept in the example: ∂L/∂x
        for c, dloss, z_c in zip(candidates, dloss_denergy, z, strict=True):
            for concept, direction in ((c, sign), (g, -sign)):
                gradients[concept] = gradients.get(concept, 0.0) + 2 * dloss * direction * z_c * dv_dx(concept)
        for concept, gradient in gradients.items():
            update_row(table, concept, gradient, lr)
            if not loss_spec.abs:
                x[concept] = np.maximum(x[concept], 0)
    return loss, scores
