"""Compiled kernels: C++ sources, their Python wrappers, and NumPy references.

    core/        finding and loading the library, binding to it: arrays, calls, threads
    arguments/   records that wrappers and references receive, with their C structs
    sampling/    draws from cells, trees and the adversarial generator; int8 rows
    scoring/     dot products with gathered rows, ranks, von Mises-Fisher normalizer
    text/        scanning text into ids, subsampling, windows
    training/    SGD and row-Adagrad updates of skip-gram, triples and hierarchies
    device/      skip-gram update and alias draws on a GPU, in Triton
    roofline.py  micro-benchmarks of memory access and arithmetic
    reference/   the same functions in NumPy: the fallback, and the oracle of the tests
    source/      C++, in the same folders

A wrapper checks its arguments and calls the core, or the reference if there is no core. To add a kernel, follow the
shortest one, int8_rows; tests/contract/test_kernels.py checks that its wrapper, reference, source and tests exist.
"""
