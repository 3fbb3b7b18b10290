"""Record batches to Arrow tables, beside aiokafka's Cython reader that makes Python objects.

    python bench/decode.py [--records 60000] [--value-bytes 100] [--batch-bytes 16384]

Both sides read the same bytes, check the CRCs, and touch every key, value, offset and
timestamp: in columns here, in objects there. Medians of 5 interleaved runs in one
process; the ratio is what counts, and 3x is to be reached. The bytes are those of a
large fetch, over and over: they have just been received, or read from
a file, so they are in the cache. Also printed, without a peer: validation
(`scan_batch`) and the way back (`encode_batches`).
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

from aiokafka.record._crecords import MemoryRecords

from horolog.record.batch import iter_headers
from horolog.record.builder import LogRecord, build_batch
from horolog.record.column_writer import encode_batches
from horolog.record.columns import decode
from horolog.record.compression import Codec
from horolog.record.kernels.loading import COLUMN_KERNELS
from horolog.record.scan import load_kernels, scan_batch

RUNS = 5
REPEATS = 8  # of each side in a run
AROUND_MS = 1_700_000_000_000
MAX_BYTES = 1 << 30


def make_log(records: int, value_bytes: int, batch_bytes: int, codec: Codec) -> bytes:
    """Records with 8-byte keys and half-random values, in batches as a producer fills them."""
    rng = random.Random(1)
    per_batch = max(1, batch_bytes // (value_bytes + 18))
    filler = b'{"page": "/checkout", "user": "u-1234", "ok": true}' * (value_bytes // 40 + 1)

    def record(at_ms: int) -> LogRecord:
        value = rng.randbytes(value_bytes // 2) + filler[: value_bytes - value_bytes // 2]
        return LogRecord(at_ms - rng.randrange(50), b"key-%04d" % rng.randrange(10_000), value)

    # A few batches over and over: making millions of records is not what is measured.
    pool = [
        build_batch([record(AROUND_MS + index * 100 + n) for n in range(per_batch)], codec=codec)
        for index in range(16)
    ]
    count = -(-records // per_batch)
    return b"".join(
        (index * per_batch).to_bytes(8, "big") + pool[index % 16][8:] for index in range(count)
    )


def ours(data: bytes) -> int:
    return sum(table.num_rows for table in decode(data))


def peers(data: bytes) -> int:
    count = 0
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            _ = record.key, record.value, record.offset, record.timestamp
            count += 1
    return count


def medians(*sides: Callable[[], object]) -> list[float]:
    """CPU seconds of each side, taking turns; all sides run on one thread."""
    times: list[list[float]] = [[] for _ in sides]
    for side in sides:
        side()
    for _ in range(RUNS):
        for side, taken in zip(sides, times, strict=True):
            start = time.process_time()
            for _ in range(REPEATS):
                side()
            taken.append((time.process_time() - start) / REPEATS)
    return [statistics.median(taken) for taken in times]


def scan(data: bytes) -> int:
    view = memoryview(data)
    return sum(
        scan_batch(view[at : at + header.size], header, max_bytes=MAX_BYTES).count
        for at, header in iter_headers(data)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--batch-bytes", type=int, default=16_384)
    options = parser.parse_args()
    load_kernels()
    COLUMN_KERNELS.load()
    print(
        f"{options.records:,} records of {options.value_bytes} bytes in batches of "
        f"{options.batch_bytes:,} bytes; thousands of records a CPU second"
    )
    print(f"{'codec':8}{'horolog':>10}{'aiokafka':>10}{'ratio':>8}{'scan_batch':>13}{'encode':>10}")
    for codec in Codec:
        data = make_log(options.records, options.value_bytes, options.batch_bytes, codec)
        rows = ours(data)
        assert rows == peers(data)
        table = next(decode(data, max_bytes=64 << 20))
        mine, theirs, scanned, written = medians(
            lambda data=data: ours(data),
            lambda data=data: peers(data),
            lambda data=data: scan(data),
            lambda table=table, codec=codec: sum(map(len, encode_batches(table, codec=codec))),
        )
        per_second = [rows / mine, rows / theirs, rows / scanned, table.num_rows / written]
        mine_k, theirs_k, scanned_k, written_k = (f"{rate / 1000:,.0f}" for rate in per_second)
        ratio = f"{theirs / mine:.1f}x"
        print(
            f"{codec.name.lower():8}{mine_k:>10}{theirs_k:>10}{ratio:>8}{scanned_k:>13}{written_k:>10}"
        )


if __name__ == "__main__":
    main()
