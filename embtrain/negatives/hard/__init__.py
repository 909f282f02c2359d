"""Sources that choose negatives by their score, or construct them from the query.

hardest               the best-scored of a pool, semi-hard negatives, or margin violations (WARP)
nscaching             a cache of likely candidates per query
most_informative      the candidates nearest to the error of the prediction
synthetic             base of the two below: vectors in place of candidates
synthetic_projection  the component of the query at right angles to its target
synthetic_difference  the difference of query and target
"""
