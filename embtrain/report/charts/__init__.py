"""Charts as inline SVG.

quiet.py       matplotlib, imported without its warnings
svg.py         panels of lines and whiskers, drawn by matplotlib
curves.py      group the keys of metrics.jsonl into figures, and name them
seed_bands.py  curves of several seeds as mean and range; the Pareto front
strategies.py  charts of a comparison, with one style per strategy
"""
