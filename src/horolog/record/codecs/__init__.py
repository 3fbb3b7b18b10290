"""One codec a module: packing, and reading a stream in pieces, to the end that Java demands of it.

    gzip_stream, snappy_stream, lz4_frame, zstd_frame
    stream         what they share: buffers, sizes of pieces, the errors

A stream is read if the readers of Apache Kafka's own client read it, since whatever a log holds
has to be readable there. `tests/record/codecs/streams.jsonl.xz` has their answers to 1,663 streams,
sound and damaged; each module says where it is stricter, and why.
"""
