"""Sources that draw a cell of candidates, then a candidate inside it.

base     `Cells`: when to regroup and to summarise, and the index of the cells
sampler  `CellSampling`: draws and probabilities, by the compiled core or by PyTorch
cluster  cells are k-means clusters
midx     cells are pairs of codewords (inverted multi-index)
"""
