"""The compiled library and the parts that all wrappers share.

    build_info  file names, CPU levels and the hash of the sources
    library     finds, verifies and loads the library; array and status checks
    parallel    loops over threads
    tables      argument types of the training kernels, aligned allocation
"""
