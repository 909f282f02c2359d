"""The page of a run.

page.py     report.html
summary.py  the first sentences: what was trained, how long, and the main scores
"""
