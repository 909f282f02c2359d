"""Results of a run in addition to its scores.

answers.py     answers.json: the model's answers to a few held-out queries
benchmark_hashes.py  versions of the user's benchmarks
divergence.py  warnings for runs that diverged with finite numbers
"""
