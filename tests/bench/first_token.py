#!/usr/bin/env python3
"""From the start of bloomery-serve to the first token, beside reading the file once.

    tests/bench/first_token.py build/release model.gguf [--rounds 5] [--warm] [-- server flags]

Each round reads the file once (bloomery bench --read-once), then starts the server, asks for one token as soon as it
listens, and reads its memory from /proc: the largest resident set (VmHWM), and what the plan's line promised.
Cold rounds take the file out of the page cache before both; --warm reads it into the cache. One JSON object a round and
one with the medians; the ratio is that of the medians.

A virtual machine may give memory back to its host some seconds after it was freed (free page reporting) and pays when it
is touched again. Each round touches as much fresh memory as the file has bytes, without reading, and waits --settle
seconds before that and before the server: with 0 the server meets memory that was touched a moment ago, with 5 or more
memory that is gone, as the touching did. ratio_with_touch is against reading once and touching once.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def prepare(path, warm):
    if warm:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
        return
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_once(build, path):
    out = subprocess.run([f"{build}/bin/bloomery", "bench", "-m", path, "--read-once", "1"], check=True, text=True,
                         capture_output=True).stdout
    return json.loads(out)["read_once"]


def plan_bytes(log):
    total = re.search(r"host plan: .* = ([0-9.]+) (B|KiB|MiB|GiB|TiB)", log)
    return float(total[1]) * UNITS[total[2]]


def first_token(build, path, flags):
    log_path = f"/tmp/first_token.{os.getpid()}.log"
    with open(log_path, "w+") as log:
        start = time.perf_counter()
        server = subprocess.Popen([f"{build}/bin/bloomery-serve", "-m", path, "--port", "0", *flags],
                                  stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            url = None
            for line in server.stdout:
                listening = re.match(r"listening on (\S+)", line)
                if listening:
                    url = listening[1]
                    break
            if url is None:
                raise RuntimeError("the server ended: " + open(log_path).read())
            ready = time.perf_counter()
            body = json.dumps({"prompt": "Hello", "n_predict": 1, "temperature": 0}).encode()
            request = urllib.request.Request(url + "/completion", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                json.load(answer)
            token = time.perf_counter()
            status = open(f"/proc/{server.pid}/status").read()
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        text = log.read()
    os.unlink(log_path)
    return {
        "ready_seconds": round(ready - start, 3),
        "first_token_seconds": round(token - start, 3),
        "peak_bytes": int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024,
        "plan_bytes": int(plan_bytes(text)),
        "weights": (re.search(r"weights: .*", text) or [""])[0],
    }


def main():
    arguments = sys.argv[1:]
    flags = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, flags = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--settle", type=float, default=0, help="seconds to wait before memory is touched (default 0)")
    parser.add_argument("--slack-mb", type=float, help="fail when the peak is further than this from the plan: above it something is "
                        "held that was not planned; below it so little was touched that the peak could not show that")
    options = parser.parse_args(arguments)
    rounds = []
    for _ in range(options.rounds):
        prepare(options.model, options.warm)
        time.sleep(options.settle)
        once = read_once(options.build, options.model)
        prepare(options.model, options.warm)
        time.sleep(options.settle)
        row = {"read_once_seconds": round(once["seconds"], 3), "touch_once_seconds": round(once["touch_seconds"], 3),
               **first_token(options.build, options.model, flags)}
        print(json.dumps(row), flush=True)
        rounds.append(row)
    medians = {key: statistics.median(row[key] for row in rounds)
               for key in ("read_once_seconds", "touch_once_seconds", "ready_seconds", "first_token_seconds")}
    medians["ratio"] = round(medians["first_token_seconds"] / medians["read_once_seconds"], 2)
    medians["ratio_with_touch"] = round(
        medians["first_token_seconds"] / (medians["read_once_seconds"] + medians["touch_once_seconds"]), 2)
    above = max(row["peak_bytes"] - row["plan_bytes"] for row in rounds)
    medians["peak_above_plan_mb"] = round(above / 1e6, 1)
    print(json.dumps({"medians": medians}))
    if options.slack_mb is not None and abs(above) > options.slack_mb * 1e6:
        sys.exit(f"the peak is {above / 1e6:.1f} MB above the plan, at most {options.slack_mb} either way are allowed")


if __name__ == "__main__":
    main()
