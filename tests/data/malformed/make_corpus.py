#!/usr/bin/env python3
"""Malformed GGUF files, one a case, each broken in one way.

  python3 make_corpus.py OUT

Writes OUT/<case>.gguf, or a folder OUT/<case>/ for a split set, and OUT/places.txt with a line a case:
name, path of the file to open, and the byte offset a refusal must name ("-" where it has none), separated
by tabs; and OUT/sound/, files of the same building blocks with nothing broken. The same bytes every time. What the refusal must say stands in the table of
tests/unit/model/malformed_test.cc; a case without a row there fails that test.
"""
import pathlib
import struct
import sys

U8, BOOL, STRING, ARRAY, U32, U64 = 0, 7, 8, 9, 4, 10
U16 = 2
F32, Q4_0, Q4_K, F64 = 0, 2, 12, 28
DATA = bytes(range(64))


class Gguf:
    """A file in the making; `here()` marks the place that the refusal must name."""

    def __init__(self, tensors=0, entries=0, version=3):
        self.bytes = bytearray(b"GGUF")
        self.place = None
        self.u32(version).u64(tensors).u64(entries)

    def here(self):
        self.place = len(self.bytes)
        return self

    def raw(self, data):
        self.bytes += data
        return self

    def u8(self, v):
        return self.raw(struct.pack("<B", v))

    def u32(self, v):
        return self.raw(struct.pack("<I", v))

    def u64(self, v):
        return self.raw(struct.pack("<Q", v))

    def string(self, data):
        data = data if isinstance(data, bytes) else data.encode()
        return self.u64(len(data)).raw(data)

    def key(self, name, kind):
        return self.string(name).u32(kind)

    def arch(self):
        """A sound first entry."""
        return self.key("general.architecture", STRING).string("toy")

    def entry_u32(self, name, v):
        return self.key(name, U32).u32(v)

    def tensor(self, name="weight", ne=(16,), kind=F32, offset=0):
        """One tensor entry; 16 F32 values take the 64 bytes of DATA."""
        self.string(name).u32(len(ne))
        for n in ne:
            self.u64(n)
        return self.u32(kind).u64(offset)

    def data(self, data=DATA, alignment=32):
        return self.raw(b"\0" * (-len(self.bytes) % alignment)).raw(data)

    def cut(self, count):
        del self.bytes[-count:]
        return self


CASES = {}


def case(name, value):
    assert name not in CASES, name
    CASES[name] = value


def raw_header(name, data, place):
    f = Gguf()
    f.bytes, f.place = bytearray(data), place
    case(name, f)


def header_cases():
    raw_header("empty", b"", 0)
    raw_header("magic_cut", b"GGU", 0)
    raw_header("magic_wrong", b"GGML" + bytes(60), 0)
    raw_header("version_cut", b"GGUF\x03\0", 4)
    for version in (0, 1, 4, 0xFFFFFFFF):
        raw_header(f"version_{version}", b"GGUF" + struct.pack("<IQQ", version, 0, 0), 4)
    for version in (1, 2, 3):
        raw_header(f"big_endian_v{version}", b"GGUF" + struct.pack(">IQQ", version, 0, 0), 4)
    raw_header("tensor_count_cut", b"GGUF" + struct.pack("<IQ", 3, 0)[:-1], 8)
    raw_header("entry_count_cut", b"GGUF" + struct.pack("<IQQ", 3, 0, 0)[:-1], 16)
    for power in (31, 63):
        raw_header(f"tensor_count_2_{power}", b"GGUF" + struct.pack("<IQQ", 3, 1 << power, 0), 8)
        raw_header(f"entry_count_2_{power}", b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << power), 16)
    raw_header("tensor_count_max", b"GGUF" + struct.pack("<IQQ", 3, (1 << 64) - 1, 0), 8)
    raw_header("entry_count_max", b"GGUF" + struct.pack("<IQQ", 3, 0, (1 << 64) - 1), 16)
    case("entry_count_one_more", Gguf(entries=2).arch().here().raw(bytes(14)))


def metadata_cases():
    case("key_length_cut", Gguf(entries=2).arch().here().raw(bytes(7)))
    case("key_cut", Gguf(entries=1).u64(20).here().raw(b"general.archite"))
    case("key_length_max", Gguf(entries=1).here().u64((1 << 64) - 1).raw(bytes(32)))
    case("key_too_long", Gguf(entries=1).here().key("k" * 65536, U8).u8(0))
    case("key_empty", Gguf(entries=1).here().key("", U64).u64(0))
    case("key_not_utf8", Gguf(entries=1).here().key(b"general.\xff\xfe", U8).u8(0))
    case("key_overlong_utf8", Gguf(entries=1).here().key(b"a\xc0\x80b", U8).u8(0))
    case("key_twice", Gguf(entries=2).entry_u32("same.key", 1).here().entry_u32("same.key", 1))
    case("kind_cut", Gguf(entries=1).string("some.key").here().raw(b"\x04\0\0"))
    for kind in (13, 255, 0xFFFFFFFF):
        case(f"kind_{kind}", Gguf(entries=1).string("some.key").here().u32(kind).u64(0))
    case("value_cut", Gguf(entries=1).key("some.key", U64).here().raw(bytes(7)))
    case("value_missing", Gguf(entries=1).key("some.key", U8).here())
    case("bool_2", Gguf(entries=1).key("some.key", BOOL).here().u8(2))
    case("string_length_cut", Gguf(entries=1).key("some.key", STRING).here().raw(bytes(5)))
    case("string_length_2_63", Gguf(entries=1).key("some.key", STRING).u64(1 << 63).here().raw(b"text"))
    case("string_length_max", Gguf(entries=1).key("some.key", STRING).u64((1 << 64) - 1).here().raw(b"text"))
    case("string_one_past_the_end", Gguf(entries=1).key("some.key", STRING).u64(5).here().raw(b"text"))


def array_cases():
    def array(kind):
        return Gguf(entries=1).key("some.array", ARRAY).u32(kind)

    case("array_kind_cut", Gguf(entries=1).key("some.array", ARRAY).here().raw(b"\0\0"))
    case("array_kind_13", Gguf(entries=1).key("some.array", ARRAY).here().u32(13).u64(1).u64(0))
    nested = Gguf(entries=1).key("some.array", ARRAY).here().u32(ARRAY).u64(1)
    case("array_of_arrays", nested.u32(U8).u64(1).u8(0))
    deep = Gguf(entries=1).key("some.array", ARRAY).here()
    for _ in range(1000):
        deep.u32(ARRAY).u64(1)
    case("array_of_arrays_deep", deep)
    case("array_count_cut", array(U8).here().raw(bytes(7)))
    case("array_count_max", array(U8).here().u64((1 << 64) - 1).raw(bytes(16)))
    case("array_count_2_61_times_8_wraps", array(U64).here().u64(1 << 61).raw(bytes(16)))
    case("array_count_2_32_times_4_bytes", array(U32).here().u64(1 << 32).raw(bytes(16)))
    case("array_one_past_the_end", array(U32).here().u64(5).raw(bytes(16)))
    case("array_bool_3", array(BOOL).u64(3).u8(0).u8(1).here().u8(3))
    case("array_strings_count_2_61", array(STRING).here().u64(1 << 61).raw(bytes(16)))
    case("array_strings_count_too_large", array(STRING).here().u64(3).string("").string("").raw(bytes(7)))
    case("array_string_past_the_end", array(STRING).u64(2).string("ab").u64(9).here().raw(b"12345678"))
    case("array_string_length_wraps", array(STRING).u64(2).string("ab").u64((1 << 64) - 8).here().raw(b"12345678"))
    case("array_string_length_cut", array(STRING).u64(2).string("12345678").here().raw(bytes(7)))


def alignment_cases():
    def aligned(kind, payload):
        f = Gguf(entries=1, tensors=1).string("general.alignment").here().u32(kind).raw(payload)
        return f.tensor().data()

    for value in (0, 4, 24, 33, 0xFFFFFFFF):
        case(f"alignment_{value}", aligned(U32, struct.pack("<I", value)))
    case("alignment_u64", aligned(U64, struct.pack("<Q", 32)))
    case("alignment_string", aligned(STRING, struct.pack("<Q", 2) + b"32"))
    huge = Gguf(entries=1, tensors=1).entry_u32("general.alignment", 1 << 31)
    case("alignment_2_31_leaves_no_data", huge.here().tensor().data())


def tensor_cases():
    case("tensor_count_one_more", Gguf(tensors=2).tensor().here().data(bytes(128)))
    case("tensor_name_length_cut", Gguf(tensors=2).tensor("n" * 40).here().raw(bytes(4)))
    case("tensor_name_cut", Gguf(tensors=1).u64(64).here().raw(b"n" * 40))
    case("tensor_name_length_max", Gguf(tensors=1).here().u64((1 << 64) - 1).raw(bytes(64)))
    case("tensor_name_too_long", Gguf(tensors=1).here().tensor("n" * 257).data())
    case("tensor_name_empty", Gguf(tensors=1).here().tensor("").data())
    case("tensor_name_not_utf8", Gguf(tensors=1).here().tensor(b"bl\xe2\x82").data())
    twice = Gguf(tensors=2).tensor("twice", offset=0).here().tensor("twice", offset=64)
    case("tensor_name_twice", twice.data(DATA * 2))

    # A long name, so that the tensor count fits the file wherever the entry is cut.
    name = "a.tensor.with.a.name.of.forty.bytes.long"
    case("dims_cut", Gguf(tensors=1).string(name).here().raw(bytes(2)))
    for n in (0, 5, 0xFFFFFFFF):
        f = Gguf(tensors=1).string(name).here().u32(n)
        for _ in range(min(n, 8)):
            f.u64(2)
        case(f"dims_{n}", f.u32(F32).u64(0).data())
    case("ne_cut", Gguf(tensors=1).string(name).u32(1).here().raw(bytes(7)))
    case("ne_0", Gguf(tensors=1).string(name).u32(2).u64(16).here().u64(0).u32(F32).u64(0).data())
    case("ne_product_wraps", Gguf(tensors=1).string(name).u32(2).u64(1 << 32).here().u64(1 << 32).u32(F32).u64(0))
    case("ne_product_2_63", Gguf(tensors=1).string(name).u32(2).u64(1 << 62).here().u64(2).u32(F32).u64(0))
    case("ne_max", Gguf(tensors=1).string(name).u32(1).here().u64((1 << 64) - 1).u32(F32).u64(0))
    case("size_wraps", Gguf(tensors=1).string(name).u32(1).u64(1 << 61).here().u32(F64).u64(0).data())
    case("type_cut", Gguf(tensors=1).string(name).u32(1).u64(16).here().raw(bytes(3)))
    for kind in (4, 9, 15, 31, 41, 0xFFFFFFFF):
        case(f"type_{kind}", Gguf(tensors=1).string(name).u32(1).u64(256).here().u32(kind).u64(0).data())
    case("row_no_multiple_of_32", Gguf(tensors=1).string(name).u32(2).u64(16).u64(2).here().u32(Q4_0).u64(0).data())
    case("row_no_multiple_of_256", Gguf(tensors=1).string(name).u32(2).u64(128).u64(2).here().u32(Q4_K).u64(0).data())
    case("offset_cut", Gguf(tensors=1).string(name).u32(1).u64(16).u32(F32).here().raw(bytes(7)))
    for offset in (1, 16):
        f = Gguf(tensors=1).string(name).u32(1).u64(16).u32(F32).here().u64(offset)
        case(f"offset_{offset}", f.data(DATA * 2))


def data_cases():
    case("offset_past_the_end", Gguf(tensors=1).here().tensor(offset=96).data())
    case("offset_max", Gguf(tensors=1).here().tensor(offset=(1 << 64) - 32).data())
    case("data_one_byte_short", Gguf(tensors=1).here().tensor().data().cut(1))
    case("data_missing", Gguf(tensors=1).here().tensor())
    case("data_larger_than_the_file", Gguf(tensors=1).here().tensor(ne=(1 << 20, 1 << 20)).data())
    case("data_of_second_short", Gguf(tensors=2).tensor("one").here().tensor("two", offset=64).data())
    case("overlap_whole", Gguf(tensors=2).tensor("one").here().tensor("two").data(DATA * 2))
    case("overlap_part", Gguf(tensors=2).tensor("one").here().tensor("two", offset=32).data(DATA * 2))
    case("overlap_listed_backwards", Gguf(tensors=2).here().tensor("two", offset=32).tensor("one").data(DATA * 2))


def shard(no, count, tensors, names, architecture="toy", tensors_kind=U32):
    entries = 4
    f = Gguf(tensors=len(names), entries=entries)
    f.key("general.architecture", STRING).string(architecture)
    f.key("split.no", U16).raw(struct.pack("<H", no))
    f.key("split.count", U16).raw(struct.pack("<H", count))
    f.key("split.tensors.count", tensors_kind).u32(tensors)
    for i, name in enumerate(names):
        f.tensor(name, offset=64 * i)
    return f.data(DATA * len(names))


def place_of(f, key):
    """The place of a key's value type."""
    f.place = f.bytes.index(key.encode()) + len(key)
    return f


def split_cases():
    def split(name, first, others, opened="set-00001-of-00003.gguf", at=None):
        """at: the file and key that the refusal names; others: no -> file."""
        files = {opened: first}
        for no, f in others.items():
            files[f"set-{no + 1:05d}-of-00003.gguf"] = f
        place = None
        if at:
            f, key = at
            place = place_of(f, key).place
        case(name, (opened, files, place))

    a, b, c = (shard(i, 3, 3, [f"t{i}"]) for i in range(3))
    split("split_second_missing", a, {2: c})
    split("split_last_missing", a, {1: b})
    split("split_not_the_first", b, {0: a, 2: c}, opened="set-00002-of-00003.gguf", at=(b, "split.no"))
    split("split_name_without_numbers", a, {1: b, 2: c}, opened="model.gguf", at=(a, "split.count"))
    split("split_name_of_another_count", a, {}, opened="set-00001-of-00004.gguf", at=(a, "split.count"))
    copy = shard(2, 3, 3, ["t2"])
    split("split_second_is_a_copy_of_the_third", a, {1: copy, 2: c}, at=(copy, "split.no"))
    copy = shard(0, 3, 3, ["t0"])
    split("split_second_is_a_copy_of_the_first", a, {1: copy, 2: c}, at=(copy, "split.no"))
    other = shard(1, 4, 3, ["t1"])
    split("split_counts_differ", a, {1: other, 2: c}, at=(other, "split.count"))
    other = shard(1, 3, 9, ["t1"])
    split("split_tensor_counts_differ", a, {1: other, 2: c}, at=(other, "split.tensors.count"))
    other = shard(1, 3, 3, ["t1"], architecture="another")
    split("split_of_another_model", a, {1: other, 2: c}, at=(other, "general.architecture"))
    other = Gguf(tensors=1, entries=1).arch().tensor("t1").data()
    split("split_second_is_no_part", a, {1: other, 2: c})
    first = shard(0, 3, 4, ["t0"])
    rest = {i: shard(i, 3, 4, [f"t{i}"]) for i in (1, 2)}
    split("split_total_wrong", first, rest, at=(first, "split.tensors.count"))
    other = shard(2, 3, 3, ["t0"])
    case("split_tensor_twice", ("set-00001-of-00003.gguf", {
        "set-00001-of-00003.gguf": a, "set-00002-of-00003.gguf": b, "set-00003-of-00003.gguf": other},
        other.bytes.index(b"t0") - 8))
    other = shard(1, 3, 3, ["t1"])
    split("split_second_cut", a, {1: other.cut(1), 2: c})
    CASES["split_second_cut"] = (*CASES["split_second_cut"][:2], other.bytes.index(b"t1") - 8)
    many = shard(0, 2000, 3, ["t0"])
    split("split_too_many_files", many, {}, opened="set-00001-of-02000.gguf", at=(many, "split.count"))
    f = Gguf(entries=1).key("split.count", STRING).string("3").data(b"")
    split("split_count_is_a_string", f, {}, at=(f, "split.count"))
    f = Gguf(entries=1).entry_u32("split.count", 3).data(b"")
    split("split_no_missing", f, {})


def sound_files():
    """What the cases break, unbroken: if one of these is refused, a case may be refused for the wrong reason."""
    kinds = Gguf(entries=5, version=2).arch().entry_u32("some.number", 7).key("some.key", BOOL).u8(1)
    kinds.key("some.array", ARRAY).u32(STRING).u64(3).string("ab").string("").string("12345678")
    kinds.key("some.numbers", ARRAY).u32(U32).u64(4).raw(bytes(16))
    tensors = Gguf(tensors=2).tensor("one").tensor("two", offset=64)
    quantised = Gguf(tensors=1).tensor("weight", ne=(256, 2), kind=Q4_K)
    aligned = Gguf(tensors=1, entries=1).entry_u32("general.alignment", 64).tensor("n" * 256)
    files = {
        "header": Gguf(),
        "kinds": kinds,
        "tensors": tensors.data(DATA * 2),
        "quantised": quantised.data(bytes(288)),
        "aligned": aligned.data(DATA, 64),
    }
    for i in range(3):
        files[f"set-{i + 1:05d}-of-00003"] = shard(i, 3, 3, [f"t{i}"])
    return files


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for make in (header_cases, metadata_cases, array_cases, alignment_cases, tensor_cases, data_cases, split_cases):
        make()
    lines = []
    for name, value in sorted(CASES.items()):
        if isinstance(value, Gguf):
            path, place = f"{name}.gguf", value.place
            (out / path).write_bytes(value.bytes)
        else:
            opened, files, place = value
            (out / name).mkdir(exist_ok=True)
            for file, content in files.items():
                (out / name / file).write_bytes(content.bytes)
            path = f"{name}/{opened}"
        lines.append(f"{name}\t{path}\t{'-' if place is None else place}\n")
    (out / "sound").mkdir(exist_ok=True)
    for name, content in sound_files().items():
        (out / "sound" / f"{name}.gguf").write_bytes(content.bytes)
    (out / "places.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
