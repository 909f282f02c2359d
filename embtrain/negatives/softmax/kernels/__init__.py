"""Sources that draw in proportion to a kernel K(h, c) = φ(h)·φ(c), through a tree of sums.

base               `KernelSource`: settings, updates of the tree, state
sampler            `TreeSampler`: draws and probabilities, by the compiled core or by PyTorch
inside             `BlockSampler`: draws inside the blocks
blocks             `CandidateBlocks`: the candidates, block by block
sum_tree           `SumTree`: sums of features at every node, and the walk from the root to a block
feature_map        `FeatureMap`: the interface of φ
exponential        common to the features of the exponential kernel: ν and the scale
random_directions  Gaussian, orthogonal and structured directions
rff                random Fourier features
positive_features  positive random features
maclaurin          random Maclaurin features
quadratic          the quadratic kernel, exactly
"""
