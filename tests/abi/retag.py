#!/usr/bin/env python3
"""usage: retag.py IN OLD NEW OUT: the GGUF file IN with its architecture OLD called NEW.

Replaces the value of general.architecture and the prefix of the keys that begin with "OLD.". Names and
lengths change, so the header is written anew and the tensor data moved to the next aligned offset.
"""
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def string(self):
        return self.take(self.u64())

    def value(self, kind):
        """The raw bytes of a value."""
        start = self.at
        if kind == 8:
            self.string()
        elif kind == 9:
            item, count = self.u32(), self.u64()
            if item in SIZES:
                self.take(SIZES[item] * count)
            else:
                for _ in range(count):
                    self.value(item)
        else:
            self.take(SIZES[kind])
        return self.data[start:self.at]


def string(raw):
    return struct.pack("<Q", len(raw)) + raw


def main():
    source, old, new, target = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode(), sys.argv[4]
    reader = Reader(open(source, "rb").read())
    magic, version, tensors, keys = reader.take(4), reader.u32(), reader.u64(), reader.u64()
    out = magic + struct.pack("<IQQ", version, tensors, keys)
    alignment, renamed = 32, 0
    for _ in range(keys):
        key, kind = reader.string(), reader.u32()
        value = reader.value(kind)
        if key == b"general.alignment":
            alignment = struct.unpack("<I", value)[0]
        if key == b"general.architecture" and value == string(old):
            value, renamed = string(new), renamed + 1
        if key.startswith(old + b"."):
            key, renamed = new + key[len(old):], renamed + 1
        out += string(key) + struct.pack("<I", kind) + value
    for _ in range(tensors):
        start = reader.at
        reader.string()
        reader.take(8 * reader.u32() + 4 + 8)
        out += reader.data[start:reader.at]
    data = reader.data[-(-reader.at // alignment) * alignment:]
    out += b"\0" * (-len(out) % alignment) + data
    if renamed < 2:
        sys.exit(f"{source} has no architecture {old.decode()}")
    open(target, "wb").write(out)


if __name__ == "__main__":
    main()
