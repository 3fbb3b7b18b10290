"""Record batches: bytes to facts, to columns, and back. No clock, and no I/O but for compiled code.

    batch        the 61-byte header, CRC-32C, iteration over whole batches
    timestamps   what a timestamp means, and that there is none
    compression  the five codecs, within bounds (codecs has a module for each)
    builder      records to batch bytes and back, one object per record: for tools and tests
    scan         what validation and time lookups need to know of a batch's records
    old_format   messages of v0 and v1, read as records of v2 by all of these, and written
    conversion   batches of any format as batches of any other
    columns      batches to Arrow tables; needs pyarrow (decoder, batch_runs, row_buffers)
    column_writer  the way back; needs pyarrow, too (row_columns)

Below these, in `kernels`, the loops over records: numba kernels and their twins in plain Python.
"""
