"""Checks for components of other packages: `check_source(SourceClass)` runs the contract of negative sources.

    check.py          runs the rules on a source class
    case.py           the case that a rule checks, and its error
    worlds.py         a tiny problem with a fixed model
    draw_rules.py     settings and draws
    density_rules.py  probabilities
    state_rules.py    seeds, saved state, learning
    own_files.py      sources in a Python file or strategy of the user (`embtrain check`)
"""

from embtrain.testing.case import ContractError
from embtrain.testing.check import check_source

__all__ = ["ContractError", "check_source"]
