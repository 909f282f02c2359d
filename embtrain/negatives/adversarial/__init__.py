"""Adversaries: sources whose q is trained on the costs of their negatives, or on the positives.

ace, ace_config  adversarial contrastive estimation: noise and a generator over all candidates; its settings
generator        the generator of ACE: its parameters and their gradient
generator_cache  rows of the generator between two of its steps, and its collected gradient
shortlist        frequent candidates alone, rare ones in groups, as in adaptive softmax
shared_draws     ACE when rows with different queries share their negatives
adversarial_tree, label_tree  a tree of logistic regressions fitted to positives; the tree
kbgan            a generator over a few uniform candidates
"""
