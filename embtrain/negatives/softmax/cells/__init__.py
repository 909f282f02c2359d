"""Sources that draw a cell of candidates, then a candidate inside it.

base     `Cells`: when to regroup and to summarise, and the weights of the cells
index    `CellIndex`: the candidates, cell by cell
sampler  `CellSampler`: draws and probabilities, by the compiled core or by PyTorch
inside   probabilities and draws inside a cell
cluster  cells are k-means clusters
midx     cells are pairs of codewords (inverted multi-index)
"""
