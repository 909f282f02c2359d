"""Evaluation: scores of a trained model or of a file of vectors, with intervals.

config.py           the keys under `evaluate:`
heldout.py          likelihood and rank of held-out pairs
language.py         perplexity of a language model
link_prediction.py  filtered ranks of triples
label_precision.py  precision, nDCG and propensity-scored precision of labels
gradient_bias.py    distance of a source's q to the softmax, and the bias of its gradient
words/              similarity, analogies, nearest neighbours, hubness
pairs/              hypernymy and lexical entailment
translation/        decoding, BLEU and accuracy of predicted vectors
statistics/         intervals, tests, and verdicts on the difference of two systems
comparison/         the schema of results.json
"""
