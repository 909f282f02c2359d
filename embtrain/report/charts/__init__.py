"""Charts as inline SVG.

svg.py         panels of lines and whiskers, drawn by matplotlib
curves.py      group the keys of metrics.jsonl into figures, and name them
seed_bands.py  curves of several seeds as mean and range; the Pareto front
strategies.py  charts of a comparison, with one style per strategy
"""

import logging

_log = logging.getLogger("matplotlib")
_level = _log.level
_log.setLevel(logging.ERROR)  # else its import warns about a home folder that cannot be written, also under --quiet
import matplotlib.figure  # noqa: E402, F401

_log.setLevel(_level)
