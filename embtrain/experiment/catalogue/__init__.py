"""`embtrain list` and `embtrain config`: the available components and their keys.

listing.py       strategies by purpose; models, sources, losses, corpora and benchmarks by name
components.py    names and first lines of models, sources and losses, without importing them
combinations.py  which sources, losses and models can be combined
schema.py        JSON schema of the settings
"""
