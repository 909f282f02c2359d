"""The map of a run's vectors, and the neighbours that its page contains.

entries.py  the most frequent entries of a run folder: names and unit vectors
layout.py   positions in two dimensions, by UMAP, openTSNE or PCA
section.py  the section of the page
"""
