"""Tools of the sources; no module here defines one.

alias          alias tables: draws from a fixed distribution in O(1)
alias_lists    alias tables of many lists of candidates
inverse_cdf    draws by inverse cumulative distribution, and counter-based random streams
row_store      rows stored as float32 or int8
inner_product  queries and candidates scaled so that a score is an inner product
context_index  rows of a table by context id
row_groups     groups of rows that share a draw although their queries differ
pool           nested sources, and the base of sources that select from a pool
within_cell    draws inside a cell, output buffers, and checks of query-dependent sources
kmeans         seeded k-means on a sample
"""
