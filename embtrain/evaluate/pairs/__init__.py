"""Evaluation of word and concept pairs: does u entail v?

hypernymy.py   accuracy, F1 and average precision of held-out pairs against negatives
entailment.py  benchmarks of lexical entailment
own_pairs.py   labelled or graded pairs from the user's file
scorer.py      scores of word pairs by a model
"""
