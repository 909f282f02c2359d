"""Arguments of the kernels: records of arrays, their checks and their C structs. Below wrappers and references.

    draws      a request for negatives and its output buffers
    cells      the cells of a partition and requests
    trees      a tree of sums, its blocks and requests
    generator  the tables of the adversarial generator, its draws, REINFORCE
    pairs      rows, loss specs and the C struct of the kernels of hierarchies
    updates    rows and loss specs of skip-gram and triples; tables and negatives are in core/tables.py
"""
