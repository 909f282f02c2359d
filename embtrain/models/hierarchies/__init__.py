"""Models of hierarchies: does u entail v, for a hyponym u and a hypernym v?

base.py     the table of concepts, queries of either end, and scores in chunks, shared by these models
order.py    order embeddings: a cone is an orthant
cone.py     entailment cones in the Poincaré ball
shadow_cone.py  shadow cones in the hyperbolic half-space
poincare.py  Poincaré embeddings: distances and norms
box.py      Gumbel boxes: probability of containment
riemannian.py  gradients of points in curved space
bounds.py   bounds of the rows that an update changed
"""
