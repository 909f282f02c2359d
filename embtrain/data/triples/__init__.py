"""Knowledge graphs as triples (head, relation, tail).

    files.py        reads files of names, OpenKE files and N-Triples into names and rows of ids
    ntriples.py     the grammar of N-Triples
    graph.py        `TriplesConfig`, `Graph`: ids by frequency, held-out parts, the cache
    examples.py     `TripleExamples` (training batches), `KnownTriples` (known positives)
    example_weights.py  weights of training examples by the counts of their queries
    query_names.py  queries as a file of candidates names them; entities by side of a relation
    own_triples.py  a user's test file, in the names of a trained graph
"""
