"""Sources whose q is a list of candidates per query, mixed with static noise.

base        draws, probabilities and shared draws
candidates  lists from a file
reflexive   the entity of the query
typed       entities seen on the same side of the same relation
"""
