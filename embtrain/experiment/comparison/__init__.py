"""Comparison of strategies over seeds, with paired statistics.

compare.py       plan, run, score and report a comparison
grid.py          Grid: the strategies, models, losses and seeds of a comparison
checks/          checks before the first run: folder, pairs, parts, metrics, disk
engine.py        one engine and one block size for all cells
workers.py       the worker processes, one per cell
shared/          the same comparison on several machines
outcome.py       CellOutcome: the results of one cell, read from its folder
results.py       results.json: summaries, tests, items and equal budgets
verdict.py       the verdict in three sentences
tuning.py        settings chosen for each strategy before the comparison
search_space.py  parse --search
join.py          compare runs that were trained separately
failures.py      the error of a comparison in which cells failed
"""
