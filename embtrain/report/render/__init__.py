"""Render documents.

document.py         the blocks of a document
html.py             a document as HTML
html_tags.py        the frame of a page, and the escaping of its text
css.py              the style sheet
markdown_latex.py   a document as Markdown and LaTeX; scores as CSV
escape_markdown.py  escape text for Markdown
"""
