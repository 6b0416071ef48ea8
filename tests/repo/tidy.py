#!/usr/bin/env python3
"""Runs clang-tidy on every source of ours, as many at once as there are cores.

  tidy.py BUILD_FOLDER

A source whose preprocessed text and whose checks are the same as when it last passed is not run again:
the stamp lies in BUILD_FOLDER/tidy. Exits 1 when any source has a finding.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

TIDY = "clang-tidy-19"


def commands(build, root):
    """The compile command of each tracked source, once."""
    tracked = set(subprocess.run(["git", "-C", str(root), "ls-files", "*.cc"], capture_output=True, text=True,
                                 check=True).stdout.split())
    seen = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = os.path.relpath(entry["file"], root)
        if path in tracked:
            seen.setdefault(path, entry)
    return seen


def key(entry, checks):
    words = shlex.split(entry["command"])
    words = [w for w in words if not w.endswith("ccache")]
    out = words.index("-o")
    del words[out:out + 2]
    words[words.index("-c")] = "-E"
    text = subprocess.run(words + ["-P"], capture_output=True, cwd=entry["directory"], check=True).stdout
    return hashlib.sha256(checks + text).hexdigest()


def lint(path, entry, build, root, checks):
    stamp = build / "tidy" / key(entry, checks)
    if stamp.exists():
        return path, 0, ""
    run = subprocess.run([TIDY, "-p", str(build), "--quiet", entry["file"]], capture_output=True, text=True, cwd=root)
    if run.returncode == 0:
        stamp.touch()
    return path, 1 if run.returncode == 0 else 2, run.stdout + (run.stderr if run.returncode else "")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    root = pathlib.Path(__file__).resolve().parents[2]
    (build / "tidy").mkdir(exist_ok=True)
    checks = (root / ".clang-tidy").read_bytes()
    entries = commands(build, root)
    ran = failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(lint, path, entry, build, root, checks) for path, entry in sorted(entries.items())]
        for job in concurrent.futures.as_completed(jobs):
            path, state, text = job.result()
            ran += state > 0
            if state == 2:
                failed += 1
                print(f"{path}:\n{text}", flush=True)
    print(f"lint: {len(entries)} sources, {ran} run, {failed} with findings")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
