"""The results of a comparison: the schema of results.json, which the comparison writes and its report reads.

results.py       ComparisonResults: the file as a whole, with its rows
reproduction.py  Reproduction: a paper's claim with reported and measured numbers
"""
