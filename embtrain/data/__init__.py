"""Readers of data files: text, graphs, hierarchies, labels, parallel text and vectors.

storage          bytes: archives, containers, lines, the cache, checksums
catalogue        recipes of corpora/ and evals/, downloads, the list of data sets
formats          file formats that several readers share, and their detection
inventory        the part (train, valid, test) of each file of a folder or archive
text             running text: tokenizers, vocabulary, held-out parts, skip-gram windows, streams
walks            edge lists, and random walks over a graph
triples          triples of a knowledge graph
hierarchy        pairs of a hierarchy, and WordNet
labels           documents with labels (extreme classification)
parallel         pairs of sentences for translation
vectors          vector files
known_pairs      the set of observed (context, target) pairs
benchmarks, own_benchmarks   benchmarks by name, and files of the user
"""
