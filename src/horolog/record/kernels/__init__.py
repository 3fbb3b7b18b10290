"""Loops over records, which numba compiles where it is installed (`horolog[fast]`).

    layout         arrays of integers that kernels share, and the status that kernels return
    machine        numbers, bytes and checksums for kernels that run as plain Python
    scan_kernels, column_kernels, message_kernels, plain_kernels, cleaning_kernels, join_kernels,
    block_kernels  the text of kernels, and the arrays of their state: plain Python without an
                   object for each record
    record_kernels text that these share
    compiled       compilation of the text, and its replacement of `machine`
    cache          cache of compiled code
    loading        sets of kernels, and when they are loaded
    crc_rows       checksums in tables and columns, with numpy alone

A kernel is written once. It runs as plain Python until it is compiled, and where numba is not
installed. Only `compiled` and `cache` import numba.

Text is plain Python that numba can compile: no slices, no exceptions, no objects but tuples. A sum
or a shift that may exceed 64 bits is wrapped in `int64` or `uint64`. A sum of numbers with and
without a sign is wrapped in `uint64`, too: numba would make a floating-point number of it.
"""
