"""`embtrain list`: the available components.

listing.py       strategies, models, sources, losses, corpora and benchmarks by name
combinations.py  which sources, losses and models can be combined
"""
