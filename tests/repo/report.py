#!/usr/bin/env python3
"""Counts what ran and compares the tests that were skipped with the committed list.

  report.py SKIPS RESULTS.xml …

SKIPS has a line a test that may be skipped: `condition name`, the condition one of the words below or
`always`. A test skipped but not listed, or listed for a condition that holds but not skipped, is a
failure: nothing is left out in silence. Ends with the line "N passed, N failed, N skipped".
"""
import os
import pathlib
import platform
import shutil
import sys
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parents[2]


BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]  # as tests/e2e/page/browser.mjs
AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}


def has_avx512():
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
    return AVX512 <= set(flags)


def conditions():
    oracles = os.environ.get("BLOOMERY_ORACLES") or str(ROOT.parent / "shared" / "oracles")
    return {
        "always": True,
        "no-oracles": not pathlib.Path(oracles, "models").is_dir(),
        "no-avx512": platform.machine() == "x86_64" and not has_avx512(),
        "no-browser": not (os.environ.get("BLOOMERY_BROWSER") or any(map(shutil.which, BROWSERS))),
        "not-root": os.geteuid() != 0,
    }


def expected(path):
    holds = conditions()
    wanted = set()
    for n, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] not in holds:
            sys.exit(f"{path}:{n}: want 'condition name' with a condition of {', '.join(sorted(holds))}")
        if holds[words[0]]:
            wanted.add(words[1])
    return wanted


def main():
    wanted = expected(sys.argv[1])
    passed = failed = 0
    skipped, failures, all_names = set(), [], set()
    for path in sys.argv[2:]:
        for case in ET.parse(path).getroot().iter("testcase"):
            name, status = case.get("name"), case.get("status")
            all_names.add(name)
            if case.find("failure") is not None or status == "fail":
                failed += 1
                failures.append(f"{path}: {name}")
            elif case.find("skipped") is not None or status in ("notrun", "disabled"):
                skipped.add(name)
            else:
                passed += 1
    for name in failures:
        print(f"failed: {name}")
    for name in sorted(skipped - wanted):
        failed += 1
        print(f"skipped but not in {sys.argv[1]}: {name}")
    for name in sorted((wanted & all_names) - skipped) + sorted(wanted - all_names):
        failed += 1
        print(f"in {sys.argv[1]} but not skipped: {name}")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
