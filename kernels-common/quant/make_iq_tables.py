#!/usr/bin/env python3
"""Writes iq_tables.inc: the code books of the IQ types, packed 16 bits an entry.

Usage: make_iq_tables.py tests/data/quants/iq_grids.json > kernels-common/quant/iq_tables.inc

A code book has few distinct magnitudes; an entry keeps their indices, 2 bits each for 8 values, 3 bits
each for 4, the first value in the lowest bits. iq_tables.cc turns them back into bytes at compile time.
"""
import json
import sys

BOOKS = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]


def main():
    grids = json.load(open(sys.argv[1], encoding="utf-8"))
    print("// Made by make_iq_tables.py; facts of the GGUF format.")
    print("// clang-format off")
    for name in BOOKS:
        grid = grids[name]
        width, values = grid["width"], grid["values"]
        levels = sorted(set(values))
        bits = 2 if width == 8 else 3
        ident = "k" + "".join(part.capitalize() for part in name.split("_"))
        print(f"constexpr std::int8_t {ident}Levels[] = {{{', '.join(map(str, levels))}}};")
        print(f"constexpr std::uint16_t {ident}Packed[{grid['entries']}] = {{")
        packed = []
        for start in range(0, len(values), width):
            entry = 0
            for i, value in enumerate(values[start:start + width]):
                entry |= levels.index(value) << (bits * i)
            packed.append(f"0x{entry:04X}")
        for start in range(0, len(packed), 12):
            print("  " + ", ".join(packed[start:start + 12]) + ",")
        print("};")
    print("// clang-format on")


main()
