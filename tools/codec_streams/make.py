"""Streams of every codec, sound and damaged, and what Apache Kafka's own readers say of each.

    PYTHONPATH=tests/lab python tools/codec_streams/make.py

asks the Java client among the peers (`make peers`) and writes
`tests/record/codecs/streams.jsonl.xz`: one JSON array a line, of codec, name, records that the
batch declares, the stream in base64, and Java's answer.
"""

import base64
import json
import lzma
import random
import struct
import subprocess
import zlib
from pathlib import Path

import cramjam
import lz4.block
import lz4.frame
import zstandard
from batches import batch_of
from xxhash import xxh32_intdigest as xxh32

from horolog.record.compression import Codec, compress
from horolog.record.record_bytes import record_bytes

_TOP = Path(__file__).parents[2]
_GOLDEN = _TOP / "tests" / "record" / "codecs" / "streams.jsonl.xz"
_random = random.Random(7)


def body(n, size):
    out = b""
    for i in range(n):
        v = (b"value-%d-" % i) * (size // 9 + 1)
        out += record_bytes(i, i, b"k%d" % i, v[:size], [(b"h", b"x")] if i % 2 else [])
    return out


SMALL = (3, body(3, 9))
LARGE = (40, body(40, 4000))  # 160 kB: several blocks
ONE = (1, body(1, 0))
NOISE = (2, b"".join(record_bytes(0, i, None, _random.randbytes(700), []) for i in range(2)))
FIRST = record_bytes(0, 0, b"a", b"first", [])
SECOND = record_bytes(0, 1, b"b", b"second", [])
SKIP = struct.pack("<II", 0x184D2A50, 4) + b"skip"  # a frame that readers of lz4 and zstd skip


BODIES = {"small": SMALL, "large": LARGE, "noise": NOISE}
cases: list[tuple[Codec, str, int, bytes]] = []


def add(codec, name, count, payload):
    cases.append((codec, name, count, bytes(payload)))


# What is done to a stream of every codec.


def add_kept(codec, name, count, payload):
    for size in range(len(payload)):
        add(codec, f"{name} {size}", count, payload[:size])


def add_flipped(codec, name, count, payload, times=1, show=False):
    for i in range(len(payload)):
        for _ in range(times):
            x = bytearray(payload)
            x[i] ^= 1 << _random.randrange(8)
            add(codec, f"{name} {i} flipped{f' {x[i]:#x}' if show else ''}", count, x)


def add_counts(codec, count, payload):
    add(codec, "fewer records than claimed", count + 1, payload)
    add(codec, "more records than claimed", count - 1, payload)


def add_skippable(codec, count, payload):
    add(codec, "skippable then full", count, SKIP + payload)
    add(codec, "full then skippable", count, payload + SKIP)
    add(codec, "skippable only", count, SKIP)


def add_two(codec, what, count, pack):
    payload = pack(SMALL[1])
    add(codec, f"two {what}, all records in both", count, payload + payload)
    add(codec, f"two {what}, half each", 2, pack(FIRST) + pack(SECOND))
    add(codec, f"two {what}, first has all", 1, pack(FIRST) + pack(SECOND))


def add_empty(codec, what, count, payload, empty):
    add(codec, f"empty {what}", 1, empty)
    add(codec, f"empty {what} then full", count, empty + payload)
    add(codec, f"full then empty {what}", count, payload + empty)


# ---------------- lz4
MAG = b"\x04\x22\x4d\x18"


def lhead(flg=0x60, bd=0x40, extra=b"", hc=None):
    d = bytes([flg, bd]) + extra
    return MAG + d + bytes([(xxh32(d) >> 8) & 0xFF if hc is None else hc])


def lraw(data):
    return struct.pack("<I", len(data) | 1 << 31) + data


def lblk(data):
    c = lz4.block.compress(data, store_size=False)
    return struct.pack("<I", len(c)) + c


END = bytes(4)


def frame(*blocks, **head):
    return lhead(**head) + b"".join(blocks) + END


def lf(data, **k):
    k.setdefault("block_linked", False)
    k.setdefault("store_size", False)
    k.setdefault("block_size", lz4.frame.BLOCKSIZE_MAX64KB)
    return lz4.frame.compress(data, **k)


def lz4_streams():
    c = Codec.LZ4

    def put(name, payload, count=SMALL[0]):
        add(c, name, count, payload)

    for nm, (count, b) in BODIES.items():
        for opt in (
            {},
            {"content_checksum": True},
            {"block_checksum": True},
            {"content_checksum": True, "block_checksum": True},
            {"store_size": True},
            {"block_linked": True},
            {"block_size": lz4.frame.BLOCKSIZE_MAX256KB},
            {"block_size": lz4.frame.BLOCKSIZE_MAX1MB},
            {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
            {"compression_level": 9},
        ):
            if nm == "noise" and opt:
                continue
            f = lf(b, **opt)
            tag = f"{nm} {' '.join(opt) or 'plain'}"
            put(tag, f, count)
            cuts = sorted(
                {1, 2, 3, 4, 5, 8, 9, 12, *range(20, len(f), max(1, len(f) // 8))}
                | ({len(f) // 2} if nm != "small" else set())
            )
            if nm == "noise":
                cuts = [1, 4, 8, 12]
            for cut in cuts:
                if cut < len(f):
                    put(f"{tag} cut {cut}", f[:-cut], count)
    n, b = SMALL
    f = lf(b)
    add_kept(c, "small kept to", n, f)
    for g in (b"\0", b"garbage", b"\0" * 4, b"\xff" * 16):
        put(f"small then {g.hex()}", f + g)
    add_two(c, "frames", n, lf)
    add_empty(c, "frame", n, f, lf(b""))
    add_skippable(c, n, f)
    put("nothing", b"")
    put("legacy magic", struct.pack("<I", 0x184C2102) + lblk(b))
    # flags
    for bit in range(8):
        flg = 0x60 ^ (1 << bit)
        put(f"flg {flg:#x}, sums right", frame(lblk(b), flg=flg))
        bd = 0x40 ^ (1 << bit)
        put(f"bd {bd:#x}, sums right", frame(lblk(b), bd=bd))
    for mx in range(8):
        put(f"block max id {mx}", frame(lblk(b), bd=mx << 4))
    put("wrong header checksum", frame(lblk(b), hc=((xxh32(b"\x60\x40") >> 8) & 0xFF) ^ 1))
    put(
        "header checksum of whole frame (old clients)",
        MAG + b"\x60\x40" + bytes([(xxh32(MAG + b"\x60\x40") >> 8) & 0xFF]) + lblk(b) + END,
    )
    put("content size right", frame(lblk(b), flg=0x68, extra=struct.pack("<Q", len(b))))
    put("content size wrong", frame(lblk(b), flg=0x68, extra=struct.pack("<Q", len(b) + 1)))
    put("content size less", frame(lblk(b), flg=0x68, extra=struct.pack("<Q", len(b) - 1)))
    put("content size huge", frame(lblk(b), flg=0x68, extra=b"\xff" * 8))
    put("content size zero", frame(lblk(b), flg=0x68, extra=b"\0" * 8))
    put("dict id", frame(lblk(b), flg=0x61, extra=b"\1\0\0\0"))
    put("content checksum right", frame(lblk(b), flg=0x64) + struct.pack("<I", xxh32(b)))
    put("content checksum wrong", frame(lblk(b), flg=0x64) + struct.pack("<I", xxh32(b) ^ 1))
    for k in range(4):
        put(
            f"content checksum cut to {k}",
            frame(lblk(b), flg=0x64) + struct.pack("<I", xxh32(b))[:k],
        )
    cb = lz4.block.compress(b, store_size=False)
    put("block checksum right", frame(lblk(b), struct.pack("<I", xxh32(cb)), flg=0x70))
    put("block checksum wrong", frame(lblk(b), struct.pack("<I", xxh32(cb) ^ 1), flg=0x70))
    put("raw block", frame(lraw(b)))
    put("raw blocks of a byte", frame(b"".join(lraw(b[i : i + 1]) for i in range(len(b)))))
    put("blocks of a byte", frame(b"".join(lblk(b[i : i + 1]) for i in range(len(b)))))
    put("block of nothing inside", frame(lblk(b), lblk(b"")))
    put("raw block of nothing inside (bare high bit)", frame(lraw(b), struct.pack("<I", 1 << 31)))
    put("raw block of nothing first", frame(struct.pack("<I", 1 << 31), lraw(b)))
    put("raw block of nothing between", frame(lraw(b[:9]), struct.pack("<I", 1 << 31), lraw(b[9:])))
    put(
        "raw block of nothing between packed ones",
        frame(lblk(b[:9]), struct.pack("<I", 1 << 31), lblk(b[9:])),
    )
    put("block of nothing between", frame(lblk(b[:9]), lblk(b""), lblk(b[9:])))
    put(
        "raw data that looks like an empty raw block",
        frame(lraw(record_bytes(0, 0, b"k", b"\0\0\0\x80" * 9, []))),
        1,
    )
    put("only end mark twice", frame(lblk(b)) + END)
    put("block beyond its maximum", frame(lblk(LARGE[1])), LARGE[0])
    put("raw block beyond its maximum", frame(lraw(LARGE[1])), LARGE[0])
    put(
        "raw block of maximum and the rest",
        frame(lraw(LARGE[1][:65536]), lraw(LARGE[1][65536:131072]), lraw(LARGE[1][131072:])),
        LARGE[0],
    )
    put("block size claims beyond end", frame(struct.pack("<I", 100000), cb))
    put("block size 2^31-1", frame(struct.pack("<I", (1 << 31) - 1), cb))
    add_counts(c, n, f)
    g = lf(b, content_checksum=True, block_checksum=True)
    add_flipped(c, "checked frame, byte", n, g)
    add_flipped(c, "plain frame, byte", n, f)


# ---------------- zstd
def z(data, level=3, **k):
    return zstandard.ZstdCompressor(level=level, **k).compress(data)


def zparts(data, parts, checksum=False, end=True):
    co = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=False).compressobj()
    out = b""
    step = len(data) // parts + 1
    for i in range(0, len(data), step):
        out += co.compress(data[i : i + step]) + co.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return out + (co.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH) if end else b"")


def zstd_streams():
    c = Codec.ZSTD

    def put(name, payload, count=SMALL[0]):
        add(c, name, count, payload)

    for nm, (count, b) in BODIES.items():
        for opt in (
            {},
            {"write_checksum": True},
            {"write_content_size": False},
            {"write_checksum": True, "write_content_size": False},
        ):
            if nm == "noise" and opt:
                continue
            f = z(b, **opt)
            tag = f"{nm} {' '.join(k + '=' + str(v) for k, v in opt.items()) or 'plain'}"
            put(tag, f, count)
            for cut in (
                [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 20, len(f) // 2, len(f) - 6]
                if nm != "noise"
                else [1, 4, 700]
            ):
                put(f"{tag} cut {cut}", f[:-cut], count)
    n, b = SMALL
    for p in (2, 3, 5):
        for ck in (False, True):
            f = zparts(b, p, ck)
            put(f"{p} flushed blocks checksum={ck}", f)
            for cut in range(1, 9):
                put(f"{p} flushed blocks checksum={ck} cut {cut}", f[:-cut])
        put(f"{p} flushed blocks, never ended", zparts(b, p, end=False))
    count, b = LARGE
    put("large flushed blocks, never ended", zparts(b, 4, end=False), count)
    put("large flushed blocks", zparts(b, 4), count)
    n, b = SMALL
    f = z(b)
    add_kept(c, "small kept to", n, f)
    for g in (b"\0", b"garbage", b"\0" * 4, b"\xff" * 16, b"\x28", b"\x28\xb5\x2f\xfd"):
        put(f"small then {g.hex()}", f + g)
    add_two(c, "frames", n, z)
    put("two frames, half each, second cut", z(FIRST) + z(SECOND)[:-1], 2)
    put(
        "two frames, half each, no sizes",
        z(FIRST, write_content_size=False) + z(SECOND, write_content_size=False),
        2,
    )
    add_empty(c, "frame", n, f, z(b""))
    add_skippable(c, n, f)
    put("full then skippable cut", f + SKIP[:-1])
    put("full then skippable header cut", f + SKIP[:6])
    put("skippable between halves", z(FIRST) + SKIP + z(SECOND), 2)
    put("nothing", b"")
    g = z(b, write_checksum=True)
    add_flipped(c, "checked frame, byte", n, g)
    add_flipped(c, "plain frame, byte", n, f)
    add_counts(c, n, f)
    magic = b"\x28\xb5\x2f\xfd"

    def zraw(data, last=1):
        return ((len(data) << 3) | last).to_bytes(3, "little") + data

    for log in (0x58, 0x60, 0x68, 0x70, 0x78, 0x80, 0x88, 0x90, 0x98, 0xA0, 0xA8):  # window 2MB..
        put(
            f"window descriptor {log:#x} ({10 + (log >> 3)} bits)",
            magic + b"\0" + bytes([log]) + zraw(b),
        )
    put("reserved bit", magic + b"\x08" + b"\x58" + zraw(b))
    put("unused bit", magic + b"\x10" + b"\x58" + zraw(b))
    put("dictionary id", magic + b"\x01" + b"\x58" + b"\x07" + zraw(b))
    put("dictionary id 0", magic + b"\x01" + b"\x58" + b"\x00" + zraw(b))
    put("reserved block type", magic + b"\0\x58" + ((len(b) << 3) | 7).to_bytes(3, "little") + b)
    put(
        "raw blocks of a byte",
        magic + b"\0\x58" + b"".join(zraw(b[i : i + 1], 0) for i in range(len(b))) + zraw(b"", 1),
    )
    put(
        "raw blocks of a byte, no last",
        magic + b"\0\x58" + b"".join(zraw(b[i : i + 1], 0) for i in range(len(b))),
    )
    put("empty last block", magic + b"\0\x58" + zraw(b, 0) + zraw(b"", 1))
    put("content size wrong", magic + b"\x20" + bytes([len(b) - 1]) + zraw(b))
    put("content size wrong up", magic + b"\x20" + bytes([len(b) + 1]) + zraw(b))
    put("content size right", magic + b"\x20" + bytes([len(b)]) + zraw(b))
    put("checksum flag without checksum", magic + b"\x04\x58" + zraw(b))
    put("checksum wrong", magic + b"\x04\x58" + zraw(b) + b"abcd")
    put("v0.7 magic", b"\x27\xb5\x2f\xfd" + f[4:])
    put("raw block beyond 128 kB", magic + b"\0\x58" + zraw(NOISE[1]), NOISE[0])


# ---------------- gzip
def gz(data):
    co = zlib.compressobj(6, zlib.DEFLATED, 31)
    return co.compress(data) + co.flush()


def deflate(b):
    co = zlib.compressobj(6, zlib.DEFLATED, -15)
    return co.compress(b) + co.flush()


def gzm(b, flags=0, extra=b"", crc=None, size=None, cm=8):
    return (
        b"\x1f\x8b"
        + bytes([cm, flags])
        + b"\0" * 4
        + b"\0\xff"
        + extra
        + deflate(b)
        + struct.pack(
            "<II", zlib.crc32(b) if crc is None else crc, len(b) if size is None else size
        )
    )


def gzip_streams():
    c = Codec.GZIP

    def put(name, payload, count=SMALL[0]):
        add(c, name, count, payload)

    for nm, (count, b) in BODIES.items():
        f = gz(b)
        put(f"{nm} plain", f, count)
        for cut in [*range(1, 12), len(f) // 2] if nm != "noise" else [1, 8, 9]:
            put(f"{nm} cut {cut}", f[:-cut], count)
    n, b = SMALL
    f = gz(b)
    add_kept(c, "small kept to", n, f)
    for g in (
        b"\0",
        b"garbage",
        b"\0" * 4,
        b"\0" * 20,
        b"\xff" * 16,
        b"\x1f",
        b"\x1f\x8b",
        b"\x1f\x8b\x08",
        f[:10],
        f[:12],
        f[:-1],
        f[:-8],
        b"\x1f\x8b\x09" + f[3:],
        b"\x1e\x8b" + f[2:],
    ):
        put(f"small then {g.hex()[:24]} ({len(g)})", f + g)
    add_two(c, "members", n, gz)
    for cut in range(1, 22):
        put(f"two members, half each, second cut {cut}", gz(FIRST) + gz(SECOND)[:-cut], 2)
    put("two members with a zero between", gz(FIRST) + b"\0" + gz(SECOND), 2)
    put("two members with garbage between", gz(FIRST) + b"garbage" + gz(SECOND), 2)
    put("three members", gz(FIRST) + gz(b"") + gz(SECOND), 2)
    add_empty(c, "member", n, f, gz(b""))
    put("nothing", b"")
    put("crc wrong", gzm(b, crc=1))
    put("size wrong", gzm(b, size=len(b) + 1))
    put("method 7", gzm(b, cm=7))
    put("name", gzm(b, 8, b"name\0"))
    put("comment", gzm(b, 16, b"comment\0"))
    put("extra", gzm(b, 4, b"\3\0abc"))
    put("extra beyond", gzm(b, 4, b"\xff\xff"))
    hd = b"\x1f\x8b\x08\x02\0\0\0\0\0\xff"
    put("header crc", gzm(b, 2, struct.pack("<H", zlib.crc32(hd) & 0xFFFF)))
    put("header crc wrong", gzm(b, 2, b"\0\0"))
    for bit in (0, 5, 6, 7):
        put(f"flag {1 << bit}", gzm(b, 1 << bit))
    put("zlib instead", zlib.compress(b))
    put("raw deflate instead", deflate(b))
    add_counts(c, n, f)
    co = zlib.compressobj(6, zlib.DEFLATED, 31)
    put("flushed, never ended", co.compress(b) + co.flush(zlib.Z_SYNC_FLUSH))
    add_flipped(c, "byte", n, f, times=2, show=True)


# ---------------- snappy
XM = b"\x82SNAPPY\0"
XH = XM + struct.pack(">ii", 1, 1)


def sr(b):
    return bytes(cramjam.snappy.compress_raw(b))


def xb(b):
    s = sr(b)
    return struct.pack(">i", len(s)) + s


def snappy_streams():
    c = Codec.SNAPPY

    def put(name, payload, count=SMALL[0]):
        add(c, name, count, payload)

    for nm, (count, b) in BODIES.items():
        f = compress(c, b)
        put(f"{nm} xerial", f, count)
        put(f"{nm} raw", sr(b), count)
        for cut in [*range(1, 8), len(f) // 2] if nm != "noise" else [1, 2]:
            put(f"{nm} xerial cut {cut}", f[:-cut], count)
            put(f"{nm} raw cut {cut}", sr(b)[:-cut], count)
    n, b = SMALL
    f = compress(c, b)
    r = sr(b)
    add_kept(c, "small xerial keep", n, f)
    for g in (
        b"\0",
        b"garbage",
        b"\0" * 4,
        b"\0" * 8,
        b"\xff" * 16,
        XM,
        XH,
        XM + b"\0" * 4,
        b"\0\0",
        b"\0\0\0",
    ):
        put(f"small xerial then {g.hex()} ({len(g)})", f + g)
        put(f"small raw then {g.hex()} ({len(g)})", r + g)
    put("two xerial streams, half each", XH + xb(FIRST) + XH + xb(SECOND), 2)
    put("two xerial streams, all in both", f + f)
    put("two blocks", XH + xb(FIRST) + xb(SECOND), 2)
    put("two raw", sr(FIRST) + sr(SECOND), 2)
    put("two xerial streams, first has all", XH + xb(FIRST) + XH + xb(SECOND), 1)
    put("xerial of no blocks", XH, 1)
    put("xerial empty block", XH + xb(b""), 1)
    put("empty block between", XH + xb(FIRST) + xb(b"") + xb(SECOND), 2)
    put("empty block first", XH + xb(b"") + xb(FIRST) + xb(SECOND), 2)
    put("empty block last", XH + xb(FIRST) + xb(SECOND) + xb(b""), 2)
    put("block of size 0", XH + xb(FIRST) + b"\0\0\0\0" + xb(SECOND), 2)
    put("block of size 0 last", XH + xb(FIRST) + xb(SECOND) + b"\0\0\0\0", 2)
    put("block of size 0 first", XH + b"\0\0\0\0" + xb(FIRST) + xb(SECOND), 2)
    put("block of size -1", XH + xb(FIRST) + b"\xff" * 4 + xb(SECOND), 2)
    put("block of size -2^31", XH + xb(FIRST) + b"\x80\0\0\0", 1)
    put("block of size 2^31-1", XH + b"\x7f\xff\xff\xff" + sr(FIRST), 1)
    put("last block beyond", XH + xb(FIRST) + struct.pack(">i", 500) + sr(SECOND), 2)
    for v, w in ((0, 1), (2, 1), (1, 0), (1, 2), (2, 2), (0, 0), (-1, 1), (1, -1), (127, 127)):
        put(f"version {v} compatible {w}", XM + struct.pack(">ii", v, w) + xb(b))
    for v, w in ((0, 1), (2, 1), (1, 0), (0, 0), (1, 2)):
        put(
            f"second header version {v} compatible {w}",
            XH + xb(FIRST) + XM + struct.pack(">ii", v, w) + xb(SECOND),
            2,
        )
    put("empty raw (0)", b"\0", 1)
    put("nothing", b"")
    put("xerial blocks of a byte", XH + b"".join(xb(b[i : i + 1]) for i in range(len(b))))
    put("xerial one large block", XH + xb(LARGE[1]), LARGE[0])
    put("framing format", bytes(cramjam.snappy.compress(b)))
    add_counts(c, n, f)
    put("claims 2^31", b"\x80\x80\x80\x80\x08" + b"\0" * 8, 1)
    put("claims 2^32-1", b"\xff\xff\xff\xff\x0f" + b"\0" * 8, 1)
    put("claims 1 MB", b"\x80\x80\x40\0a", 1)
    put("xerial claims 1 MB", XH + struct.pack(">i", 5) + b"\x80\x80\x40\0a", 1)
    put("xerial claims 2^31", XH + struct.pack(">i", 7) + b"\x80\x80\x80\x80\x08\0a", 1)
    add_flipped(c, "xerial byte", n, f)
    add_flipped(c, "raw byte", n, r)


def main() -> None:
    lz4_streams()
    zstd_streams()
    gzip_streams()
    snappy_streams()
    asked = "".join(batch_of(codec, count, data).hex() + "\n" for codec, _, count, data in cases)
    java = ["java", "-cp", str(_TOP / ".peers" / "kafka-4" / "*")]
    source = Path(__file__).with_name("ReadBatches.java")
    done = subprocess.run([*java, source], input=asked, capture_output=True, check=True, text=True)
    lines = [
        json.dumps([codec.name, name, count, base64.b64encode(data).decode(), answer])
        for (codec, name, count, data), answer in zip(cases, done.stdout.splitlines(), strict=True)
    ]
    _GOLDEN.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9))
    print(f"{len(lines)} streams, {done.stdout.count(chr(10) + 'OK')} sound")


if __name__ == "__main__":
    main()
