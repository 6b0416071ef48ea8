#!/usr/bin/env python3
"""Writes unicode_tables.inc: what str methods of Python need to know about code points.

Run with the python3 the goldens were made with: python3 make_unicode_tables.py > unicode_tables.inc
"""
import sys
import unicodedata

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(predicate):
    out = []
    for c in POINTS:
        if not predicate(chr(c)):
            continue
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def print_ranges(name, predicate):
    rows = ranges(predicate)
    print(f"constexpr PointRange {name}[] = {{")
    print(",\n".join(", ".join(f"{{{a}, {b}}}" for a, b in rows[i : i + 8]) for i in range(0, len(rows), 8)))
    print("};")


def print_mapping(name, convert):
    """Simple mappings as runs (first, last, step, delta); longer results one by one."""
    runs, special = [], []
    for c in POINTS:
        to = convert(chr(c))
        if to == chr(c):
            continue
        if len(to) > 1:
            special.append((c, [ord(x) for x in to]))
            continue
        delta = ord(to) - c
        if runs and runs[-1][3] == delta and c - runs[-1][1] in (1, 2):
            step = c - runs[-1][1]
            if runs[-1][0] == runs[-1][1] or runs[-1][2] == step:
                runs[-1][1], runs[-1][2] = c, step
                continue
        runs.append([c, c, 1, delta])
    print(f"constexpr CaseRun {name}Runs[] = {{")
    print(",\n".join(", ".join("{%d, %d, %d, %d}" % tuple(r) for r in runs[i : i + 6]) for i in range(0, len(runs), 6)))
    print("};")
    print(f"constexpr CaseSpecial {name}Special[] = {{")
    print(",\n".join("{%d, {%s}}" % (c, ", ".join(map(str, (to + [0, 0])[:3]))) for c, to in special))
    print("};")


print(f"// Made by make_unicode_tables.py from Unicode {unicodedata.unidata_version}, Python {sys.version.split()[0]}.")
print_ranges("kSpace", str.isspace)
print_ranges("kAlpha", str.isalpha)
print_ranges("kDigit", str.isdigit)
print_ranges("kDecimal", str.isdecimal)
print_ranges("kNumeric", str.isnumeric)
print_ranges("kPrintable", str.isprintable)
print_ranges("kUpperCase", str.isupper)
print_ranges("kLowerCase", str.islower)
print_ranges("kTitleCase", lambda c: unicodedata.category(c) == "Lt")
print_mapping("kToUpper", str.upper)
print_mapping("kToLower", str.lower)
print_mapping("kToTitle", str.title)
