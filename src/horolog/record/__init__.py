"""Record batches of format v2: bytes to facts, to columns, and back. No I/O, no clock.

    batch        the 61-byte header, CRC-32C, iteration over whole batches
    compression  the five codecs, within bounds
    builder      records to batch bytes and back, one object per record: for tools and tests
    scan         what validation and time lookups need to know of a batch's records
    columns      batches to Arrow tables and back; needs pyarrow (row_buffers, column_writer)

Below these, the loops over records, each written twice:

    twins, column_twins      in plain Python: they define the answers, and serve at first
    kernels, column_kernels  with numba: the same answers, once they are loaded
    kernel_loading, kernel_cache   when that happens, and where compiled code is kept
"""
