"""The loops over records, which numba compiles where it is installed (`horolog[fast]`).

    layout         the arrays of integers that kernels share, and what kernels answer
    machine        what the text of kernels needs of the machine, for plain Python
    scan_kernels, column_kernels, message_kernels, plain_kernels, cleaning_kernels, join_kernels,
    block_kernels  the text of kernels, and the arrays that each is given: plain Python without an
                   object for each record
    record_kernels the text that these share
    compiled       the same text as numba compiles it, with what it needs of the machine
    cache          where compiled code is kept
    loading        when kernels are loaded, and the sets there are
    crc_rows       checksums in tables and columns, with numpy alone

A kernel is written once. It runs as plain Python until it is compiled, and where numba is not
installed. Only `compiled` and `cache` import numba.

Text is plain Python that numba can compile: no slices, no exceptions, no objects but tuples. A sum
or a shift that may leave 64 bits stands in `int64` or `uint64`. A sum of numbers with and
without a sign stands in `uint64`, too: numba would make a floating-point number of it.
"""
