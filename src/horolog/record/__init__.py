"""Record batches: bytes to facts, to columns, and back. No clock, and no I/O but for compiled code.

    batch        the 61-byte header, CRC-32C, iteration over whole batches; `header_table` has many
    timestamps   what a timestamp means, and that there is none; `looks_like` guesses wrong units
    compression  the five codecs, within bounds (codecs has a module for each)
    builder      records to batch bytes and back, one object per record: for tools and tests
    scan         what validation and block maps need to know of a batch's records
    time_stats   the times of some records, as one value that can be added up
    search       the first record at or after a time; `values`, the values of one batch alone
    walk         the loop of `scan` and `search` over the pieces that a codec gives
    identity     who produced a raw batch: producer, epoch, sequences; `batch_producers` as columns
    transactions which batches belong to aborted ones; `markers`, the batches that end them
    stamped      batches that a broker makes of its own state, with what is known of them
    old_format   messages of v0 and v1, read as records of v2 by all of these, and written
    conversion   batches of any format as batches of any other
    joining      small batches as one; `cleaning`, what compaction keeps of batches
    columns      batches to Arrow tables; needs pyarrow (decoder, batch_runs, row_buffers)
    row_range    which rows of them; `stretches`, what of a list of ranges an offset is in
    column_writer  the way back; needs pyarrow, too (row_columns)
    partitioning the partition of a key by Kafka's default partitioner

Below these, in `kernels`, the loops over records: plain Python that numba compiles.
"""
