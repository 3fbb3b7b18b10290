"""Codecs, one a module: packing, and reading a stream in pieces up to the end that Java demands.

    gzip_stream, snappy_stream, lz4_frame, zstd_frame
    stream         shared parts: buffers, sizes of pieces, the errors

A stream is readable here if the readers of Apache Kafka's own client read it. The file
`tests/record/codecs/streams.jsonl.xz` contains their answers to 1,663 streams, sound and damaged.
Each module says where it is stricter, and why.
"""
