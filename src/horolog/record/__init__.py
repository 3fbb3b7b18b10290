"""Record batches of format v2: bytes to facts, to columns, and back. No I/O, no clock.

batch        the 61-byte header, CRC-32C, iteration over whole batches
compression  the five codecs, within bounds
builder      records to batch bytes and back, one object per record: for tools and tests
scan         what validation and time lookups need to know of a batch's records
columns      batches to Arrow tables and back; needs pyarrow (row_buffers, column_writer)

kernels      the loops over records below these: numba kernels and their plain-Python twins
"""
