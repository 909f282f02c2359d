"""The report of a comparison.

page.py          report.html, report.md, report.tex and scores.csv
differences.py   the section on differences from the baseline
tables.py        tables whose further metrics are collapsed
figures.py       the figures, each with a table of its data
decimals.py      number formats that suit the spread between seeds
reproduction.py  the section that compares with a paper's numbers
rerun.py         the section on how to repeat the comparison
"""
