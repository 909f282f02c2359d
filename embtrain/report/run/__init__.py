"""The report of a run.

page.py            report.html, report.md and report.tex
score_section.py   the section of scores
curve_sections.py  the sections of curves and of the source of negatives
summary.py         the first sentences: what was trained, how long, and the main scores
"""
