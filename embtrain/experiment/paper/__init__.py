"""Claims of papers, reproduced as comparisons.

spec.py       files of configs/paper: runs, reported numbers and the checks of a claim
claims.py     evaluate the checks and set reported numbers against measured ones
reproduce.py  run the comparison of a paper
"""
