#!/usr/bin/env python3
"""Loading as a user meets it: one layer of the fixture is loaded by a server, whose largest resident set stays within
64 MB of the plan it printed (so nothing is held twice, not even while it loads): passes are short here, so that nearly
all of the plan is weights and all of it is touched, and a second copy of a tenth of them would show. And a process that may use one core
only, with more threads than that, still answers. Usage: loading_test.py BUILD_FOLDER"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SLACK_MB = "64"


def main():
    build = sys.argv[1]
    script = Path(__file__).parents[2] / "bench" / "first_token.py"
    with tempfile.TemporaryDirectory(dir=build) as folder:
        model = str(Path(folder) / "one-layer.gguf")
        subprocess.run([f"{build}/bin/bloomery", "fixture", "--arch", "qwen3moe", "--layers", "1", "--type", "Q4_K_M",
                        model], check=True, stderr=subprocess.DEVNULL)
        check = [sys.executable, str(script), build, model, "--rounds", "1", "--warm", "--slack-mb", SLACK_MB, "--"]
        small = ["-c", "256", "-ub", "8"]
        subprocess.run([*check, *small], check=True)
        subprocess.run([*check, *small, "-t", "4"], check=True,
                       preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))


if __name__ == "__main__":
    main()
