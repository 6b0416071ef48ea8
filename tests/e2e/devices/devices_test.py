#!/usr/bin/env python3
"""Choosing a device as a user meets it, on a machine whose driver shows no card (its cards are hidden from the programs
where it has some): what is not there is refused in one line, with an exit code of its own; left to itself the server runs
on the CPU and says so without alarm. With a folder that holds a driver of CUDA 12.4, the same of too old a one.
Usage: devices_test.py BIN_FOLDER [OLD_DRIVER_FOLDER]"""
import os
import re
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.argv[1])
OLD_DRIVER = sys.argv[2] if len(sys.argv) > 2 else None
MODEL = Path(__file__).parents[3] / "runtime" / "assets" / "seedling-Q4_K_M.gguf"
# Nothing of the caller's settings; no card to be seen.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("LLAMA_", "BLOOMERY_"))} | {"CUDA_VISIBLE_DEVICES": ""}
USAGE, DEVICE = 64, 69
SERVE = ["bloomery-serve", "--port", "0", "-m", str(MODEL)]
BENCH = ["bloomery", "bench", "-m", str(MODEL), "-p", "8", "-n", "1", "-r", "1"]
PLAN = ["bloomery", "plan", str(MODEL)]

REFUSED = [
    (["bloomery-serve", "--list-devices"], DEVICE, "--device none"),
    ([*SERVE, "-dev", "CUDA0"], DEVICE, "--device none"),
    ([*SERVE, "-dev", "CUDA9", "-ngl", "99"], DEVICE, "--device none"),
    ([*SERVE, "-dev", "nonsense"], USAGE, "'nonsense', must be auto, none, or cards"),
    ([*SERVE, "-dev", "CUDA0,CUDA1"], DEVICE, "--device none"),
    ([*SERVE, "-dev", "CUDA1,CUDA1"], USAGE, "-dev: CUDA1 is named twice"),
    ([*SERVE, "-ngl", "many"], USAGE, "-ngl: expected a number of layers"),
    ([*SERVE, "--card-budget", "much"], USAGE, "--card-budget: "),
    ([*BENCH, "-dev", "CUDA0"], DEVICE, "--device none"),
    ([*BENCH, "-dev", "nonsense"], USAGE, "'nonsense', must be auto, none, or cards"),
    ([*PLAN, "-dev", "CUDA0,CUDA0"], USAGE, "-dev: CUDA0 is named twice"),
    ([*PLAN, "-dev", "CUDA0,none"], USAGE, "none cannot be one of several devices"),
    ([*PLAN, "-dev", "CUDA0,CUDA1", "-ts", "1,1,1"], USAGE, "3 shares for the 2 cards"),
    ([*PLAN, "-dev", "none", "-ts", "1,1"], USAGE, "cannot be given together with --device none"),
    ([*PLAN, "-ts", "0,0"], USAGE, "-ts: no share is above 0"),
    ([*PLAN, "-sm", "row"], USAGE, "-sm: 'row': layers are not divided among cards"),
]


def run(command, environment=None, **more):
    return subprocess.run([str(BIN / command[0]), *command[1:]], env=environment or ENVIRONMENT, text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def words_of(done):
    """Lines of a refusal, without the log's and what to run then (docs/agents.md)."""
    return [line for line in done.stderr.splitlines() if not re.match(r"I\d{8} ", line) and ": next: " not in line]


def check_refusals():
    for command, code, words in REFUSED:
        done = run(command)
        said = words_of(done)
        what = f"{' '.join(command)}: code {done.returncode}, {done.stdout!r}, {done.stderr!r}"
        assert done.returncode == code, what
        assert len(said) == 1 and words in said[0] and said[0].startswith(command[0] + ": "), what
        assert done.stdout == "", what


def check_an_old_driver():
    """What it offers and what is needed, in one line; the code of a missing device."""
    old = ENVIRONMENT | {"LD_LIBRARY_PATH": OLD_DRIVER}
    for command in (["bloomery-serve", "--list-devices"], [*SERVE, "-dev", "CUDA0"], [*BENCH, "-dev", "CUDA0"]):
        done = run(command, old)
        said = words_of(done)
        assert done.returncode == DEVICE and len(said) == 1, done
        assert re.search(r"offers CUDA 12\.4; this build needs CUDA 1[3-9]\.\d: update the driver", said[0]), done
    done = run([*BENCH, "-dev", "auto"], old)
    assert done.returncode == 0 and "CUDA 12.4" in done.stderr and "on the CPU" in done.stderr, done


def log_until_listening(flags):
    server = subprocess.Popen([str(BIN / SERVE[0]), *SERVE[1:], *flags], env=ENVIRONMENT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    log = []
    try:
        for line in server.stdout:
            log.append(line)
            if "listening on" in line:
                return log
        raise AssertionError(f"{flags}: the server ended with {server.wait()}: {log}")
    finally:
        server.terminate()
        server.stdout.close()
        server.wait(timeout=20)


def check_what_runs_on_the_cpu():
    """Left to itself: one line of the log says that and why, at no higher level than where no driver is. Told to: none."""
    for flags in ([], ["-ngl", "99"], ["--card-budget", "1"]):
        log = log_until_listening(flags)
        lines = [line for line in log if "on the CPU" in line]
        assert len(lines) == 1 and not any(line.startswith("E") for line in log), (flags, log)
        if not Path("/proc/driver/nvidia").exists():
            assert lines[0].startswith("I"), lines
    for flags in (["-ngl", "0"], ["-dev", "none"], ["-dev", "none", "-ngl", "5"]):
        log = log_until_listening(flags)
        assert not any("on the CPU" in line or "NVIDIA" in line for line in log), (flags, log)
    done = run([*BENCH, "-dev", "none"])
    assert done.returncode == 0 and "tg1" in done.stdout, done


if __name__ == "__main__":
    check_refusals()
    if OLD_DRIVER:
        check_an_old_driver()
    check_what_runs_on_the_cpu()
