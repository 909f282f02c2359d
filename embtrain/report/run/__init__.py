"""The report of a run.

page.py            report.html, report.md and report.tex
score_section.py   the section of scores
definitions.py     definitions of the measures, and of the words of their notes
settings_section.py  the settings that differ from the defaults
answers_section.py  answers to a few held-out queries
curve_sections.py  the sections of curves and of the source of negatives
summary.py         the first sentences: what was trained, how long, and the main scores
"""
