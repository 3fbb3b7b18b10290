"""The loops over records, written twice: a numba kernel and a twin in plain Python.

    layout         the arrays of integers that a kernel and its twin share, and what both answer
    scan_twins, batch_twins, column_twins, message_twins, plain_twins, cleaning_twins
                   plain Python: they define the answers, and serve at first
    scan_kernels, batch_kernels, column_kernels, message_kernels, plain_kernels, cleaning_kernels
                   numba: the same answers, once they are loaded
    join_kernels   numba alone, as only jobs join batches, which wait until it is loaded
    block_kernels  numba: entries of block maps, whose twin is `storage/index/folding.py`
    record_kernels what those share that write records or read headers
    crc_rows       checksums in tables and columns, with numpy alone
    loading        when kernels are loaded, and the sets there are
    cache          compiling, and where compiled code is kept

Only the kernels themselves and the cache import numba.
"""
