"""The compiled library and the parts that all wrappers share.

    build_info   file names, CPU levels and the hash of the sources
    loader       finds, verifies and loads the library
    binding      array arguments, calls, status codes and the thread pool
    table_files  tables in files that are mapped into memory
    tables       arguments and the parallel loop of the training kernels, aligned allocation
"""
