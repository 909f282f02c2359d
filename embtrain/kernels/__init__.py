"""Compiled kernels: C++ sources, their Python wrappers, and NumPy references.

    core/        finding and loading the library, argument types, parallel loops
    sampling/    draws from cells, trees and the adversarial generator; int8 rows
    scoring/     dot products with gathered rows, ranks, von Mises-Fisher normalizer
    text/        scanning text into ids, subsampling, windows
    training/    SGD and row-Adagrad updates of skip-gram, triples and order embeddings
    roofline.py  micro-benchmarks of memory access and arithmetic
    reference/   the same functions in NumPy: the fallback, and the oracle of the tests
    source/      C++, in the same folders

A wrapper checks its arguments and calls the core, or the reference if there is no core.
"""
