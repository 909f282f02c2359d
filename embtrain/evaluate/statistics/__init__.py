"""Statistics of scores and of their differences.

intervals.py     intervals of one score
significance.py  paired tests of two systems, over seeds and over items
difference.py    Difference: effect size, verdict and power
ties.py          rounds scores that differ only by float32 error
"""
