#!/usr/bin/env python3
"""The second implementation: hash, layout, set-hash and wire forms of package
peerfilter, written from their descriptions (the murmur3 reference, the drawings
in record.go and snapshot.go), bit by bit and without regard to speed. Its output
is golden.json, which the tests compare with the Go code. Changing golden.json
means that nodes of two versions do not understand each other.

    python3 testdata/golden.py > testdata/golden.json
"""
import json

M = (1 << 64) - 1


def rotl(x, r):
    return ((x << r) | (x >> (64 - r))) & M


def fmix(k):
    k ^= k >> 33
    k = k * 0xFF51AFD7ED558CCD & M
    k ^= k >> 33
    k = k * 0xC4CEB9FE1A85EC53 & M
    return k ^ (k >> 33)


def murmur3_x64_128(data, h1, h2):
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def mix1(k):
        return rotl(k * c1 & M, 31) * c2 & M

    def mix2(k):
        return rotl(k * c2 & M, 33) * c1 & M

    whole = len(data) // 16 * 16
    for i in range(0, whole, 16):
        k1 = int.from_bytes(data[i:i + 8], "little")
        k2 = int.from_bytes(data[i + 8:i + 16], "little")
        h1 ^= mix1(k1)
        h1 = ((rotl(h1, 27) + h2) * 5 + 0x52DCE729) & M
        h2 ^= mix2(k2)
        h2 = ((rotl(h2, 31) + h1) * 5 + 0x38495AB5) & M
    tail = data[whole:]
    if len(tail) > 8:
        h2 ^= mix2(int.from_bytes(tail[8:], "little"))
    if tail:
        h1 ^= mix1(int.from_bytes(tail[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & M
    h2 = (h2 + h1) & M
    h1, h2 = fmix(h1), fmix(h2)
    h1 = (h1 + h2) & M
    h2 = (h2 + h1) & M
    return h1, h2


def positions(h, blocks):
    block = h[0] * blocks >> 64
    return [block * 512 + s * 64 + (h[1] >> (6 * s) & 63) for s in range(8)]


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & M
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M
    return x ^ x >> 31


def set_hash(pos):
    return sum(mix64(p) for p in pos) & M


def number(v, n):
    """v as n bits, lowest first"""
    return [v >> i & 1 for i in range(n)]


def rice(v, r):
    return [1] * (v >> r) + [0] + number(v & ((1 << r) - 1), r)


def pack(bits):
    out = bytearray((len(bits) + 7) // 8)
    for i, b in enumerate(bits):
        out[i // 8] |= b << (i % 8)
    return bytes(out)


def rice_list(pos, r):
    bits, prev = [], -1
    for p in sorted(pos):
        bits += rice(p - prev - 1, r)
        prev = p
    return bits


def sector_list(pos, r):
    bits, last = [], 0
    blocks = {}
    for p in sorted(pos):
        blocks.setdefault(p // 512, [[] for _ in range(8)])[p // 64 % 8].append(p % 64)
    for b in sorted(blocks):
        sectors = blocks[b]
        while any(sectors):
            bits += rice(b - last, r)
            last = b
            bits += number(sum(1 << s for s in range(8) if sectors[s]), 8)
            for s in range(8):
                if sectors[s]:
                    bits += number(sectors[s].pop(0), 6)
    return bits


def best(code, gaps, pos):
    """the lowest parameter with the shortest code, of four around log2 of the mean gap"""
    if not pos:
        return 0, []
    g = gaps(pos)
    base = max((sum(g) // len(g)).bit_length() - 3, 0)
    return min(((r, code(pos, r)) for r in range(base, base + 4)), key=lambda x: (len(x[1]), x[0]))


def rice_gaps(pos):
    pos = sorted(pos)
    return [b - a - 1 for a, b in zip([-1] + pos, pos)]


def sector_gaps(pos):
    blocks = []
    for b in sorted({p // 512 for p in pos}):
        sectors = [p // 64 % 8 for p in pos if p // 512 == b]
        blocks += [b] * max(sectors.count(s) for s in range(8))
    return [b - a for a, b in zip([0] + blocks, blocks)]


def record(seq, h, set_, clear):
    sector = best(sector_list, sector_gaps, set_), best(sector_list, sector_gaps, clear)
    ricec = best(rice_list, rice_gaps, set_), best(rice_list, rice_gaps, clear)
    code, (a, b) = 0, sector
    if sum(len(x[1]) for x in ricec) < sum(len(x[1]) for x in sector):
        code, (a, b) = 1, ricec
    payload = pack(a[1] + b[1])
    return (bytes([1, 1, code, a[0], b[0]]) + len(set_).to_bytes(3, "little") + len(clear).to_bytes(3, "little")
            + len(payload).to_bytes(3, "little") + seq.to_bytes(8, "little") + h.to_bytes(8, "little") + payload)


def crc32c(data):
    c = 0xFFFFFFFF
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    return c ^ 0xFFFFFFFF


def snapshot(pos, blocks):
    if len(pos) > 0.30 * blocks * 512:
        code, r, payload = 0, 0, pack([1 if p in pos else 0 for p in range(blocks * 512)])
    else:
        r, bits = best(rice_list, rice_gaps, pos)
        code, payload = 1, pack(bits)
    b = (b"EDFS" + bytes([1, 1, 8, code, r, 0, 0, 0]) + blocks.to_bytes(4, "little") + len(pos).to_bytes(8, "little")
         + set_hash(pos).to_bytes(8, "little") + len(payload).to_bytes(8, "little") + payload)
    return b + crc32c(b).to_bytes(4, "little")


def main():
    keys = ["", "a", "http://example.com/", "https://www.example.com/static/app.js?v=3",
            "http://127.0.0.1:9000/img/ü.png", "x" * 15, "x" * 16, "x" * 17, "x" * 31, "x" * 32, "x" * 200]
    seeds = [(0, 0), (1, 2), (0x0123456789ABCDEF, 0xFEDCBA9876543210), (M, M)]
    hashes = []
    for s in seeds:
        for k in keys:
            h = murmur3_x64_128(k.encode(), *s)
            hashes.append({
                "seed": ["%016x" % x for x in s], "key": k, "hash": ["%016x" % x for x in h],
                "positions": {str(n): positions(h, n) for n in (1, 2, 1000, 19726, 8388608)},
            })

    seed = seeds[2]
    blocks = 40

    def fill(first, last):
        return {p for i in range(first, last)
                for p in positions(murmur3_x64_128(("http://example.com/%d" % i).encode(), *seed), blocks)}

    states = []
    prev = set()
    # a first key, a few that meet in blocks, more, one goes, many come, nothing changes, all go but one
    for seq, (first, last) in enumerate([(0, 1), (0, 12), (0, 60), (1, 60), (1, 1500), (1, 1500), (1, 2)], 1):
        now = fill(first, last)
        set_, clear = sorted(now - prev), sorted(prev - now)
        h = set_hash(now)
        states.append({
            "first": first, "last": last, "set_hash": "%016x" % h, "count": len(now),
            "record": record(seq, h, set_, clear).hex(), "snapshot": snapshot(now, blocks).hex(),
        })
        prev = now
    print(json.dumps({
        "made_by": "testdata/golden.py, an implementation of its own in Python",
        "mix64": {str(x): "%016x" % mix64(x) for x in (0, 1, 63, 511, 512, 4294967295)},
        "hashes": hashes, "seed": ["%016x" % x for x in seed], "blocks": blocks, "states": states,
    }, indent=1, ensure_ascii=False))


main()
