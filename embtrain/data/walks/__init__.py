"""Random walks over a graph as a corpus.

walks        read walks of a file, or draw them over a graph (DeepWalk, node2vec)
edge_lists   read edge lists into the neighbours of each node
"""
