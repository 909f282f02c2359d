"""The report of a diagnosis.

page.py   diagnosis.json, .md and .html
table.py  the same for a terminal
"""
