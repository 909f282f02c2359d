"""Losses: scores of the positive and the negatives in, one loss per example and one cost per negative out.

base.py              Loss, its declarations and its penalty on log Z; names, find
result_checks.py     checks of losses of other packages
absolute.py          base of the softmax losses: softmax over scores or over absolute scores
softmax.py           exact softmax over all candidates
sampled_softmax.py   sampled softmax and ranking NCE
contrastive.py       contrastive loss without a correction for q, debiased or tilted to hard negatives
nce.py               noise-contrastive estimation
alpha_nce.py         the same with powers of the density ratio: from eNCE to maximum likelihood
logistic.py          negative sampling
gbce.py              negative sampling with a positive calibrated for the share of candidates that is drawn
self_adversarial.py  negative sampling with weights from the model's scores
hinges/              margin ranking, the margin loss of order embeddings, a softmax over hinged energies
continuous/, bessel.py   losses that compare a predicted vector with the target's; normalizer of von Mises-Fisher
"""
