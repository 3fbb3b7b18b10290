"""Record batches of format v2: bytes to facts, to columns, and back. No I/O, no clock.

    batch        the 61-byte header, CRC-32C, iteration over whole batches
    timestamps   what a timestamp means, and that there is none
    compression  the five codecs, within bounds (codecs has a module for each)
    builder      records to batch bytes and back, one object per record: for tools and tests
    scan         what validation and time lookups need to know of a batch's records
    columns      batches to Arrow tables and back; needs pyarrow (row_buffers, column_writer)

Below these, in `kernels`, the loops over records: numba kernels and their twins in plain Python.
"""
