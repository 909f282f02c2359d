"""Render documents.

document.py         the blocks of a document
html.py             a document as HTML
html_tags.py        the frame of a page, and the escaping of its text
css.py              the style sheet
script.py           the script: sorts tables, finds neighbours on the map
json_data.py        data for the script
vector_map.py       the map of the vectors
markdown_latex.py   a document as Markdown and LaTeX; scores as CSV
escape_markdown.py  escape text for Markdown
"""
