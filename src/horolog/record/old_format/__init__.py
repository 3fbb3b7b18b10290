"""Messages of formats v0 and v1: to records of v2, which all other code reads, and back.

    reading   one message, or a run of plain ones, as records of v2
    writing   records of v2 as a message set
    plain     plain messages of a log: their positions, and the offsets that a leader assigns
    sent      messages that a producer sends, as numbered records of v2

A message is 14 (v0) or 22 bytes (v1) without its key and value, after 12 bytes of offset and size:

    u32 crc (CRC-32 of all that follows) · i8 magic · i8 attributes · v1: i64 timestamp
    i32 key length (-1 null), key · i32 value length (-1 null), value

A compressed message has no key; its value is the compressed messages that it contains. Its offset
is that of the last of them. The messages in it have absolute offsets in v0, and offsets that count
from the first one in v1 (KIP-31). Its timestamp is their largest. A timestamp of type LogAppendTime
applies to all of them (KIP-32).
"""
