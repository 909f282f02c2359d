"""File formats that several readers share.

detect         detect the format of a text file by its first bytes
running_text   which files of a folder are running text, by suffix or content
delimited      lines of fields separated by tab, comma or blanks, and CSV
table_rows     rows of a table of words: fields, comments and the header
json_lines     one JSON object a line
arrow_tables   a column of a Parquet or Arrow file
candidate_files  lists of candidates by query, TSV or JSON lines
subwords       join text that is split into subwords
xml            incremental XML without entity declarations
tei            the text of TEI files
wiki_markup    the text of MediaWiki markup
"""
