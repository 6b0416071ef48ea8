#!/usr/bin/env python3
"""Answers with drafts beside those without: speed, acceptance, and that they are the same.

    tests/bench/drafts.py build/release model.gguf --kinds off,lookup,mtp --prompts FILE [--rounds 5] [-- server flags]

One server a kind, all at once, asked in turns: each prompt of each round goes to one after the other, greedy, `-n` tokens.
FILE: a JSON object of names to lists of prompts; a name is one row of the table (prose, structured, …). Rates are tokens a
second of generation, from `timings`; the ratio to `off` is the median over rounds of ratios within a round, so that what
else the machine does counts for both. Texts that differ end the run with an error.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import urllib.request


class Server:
    def __init__(self, build, model, kind, device, flags):
        self.process = subprocess.Popen(
            [f"{build}/bin/bloomery-serve", "-m", model, "--port", "0", "--draft", kind, "--device", device, *flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = next((m[1] for m in (re.match(r"listening on (\S+)", line) for line in self.process.stdout) if m), None)
        if self.url is None:
            raise RuntimeError(f"the server with --draft {kind} ended")

    def ask(self, prompt, tokens, ignore_eos):
        body = json.dumps({"prompt": prompt, "n_predict": tokens, "temperature": 0, "cache_prompt": False,
                           "ignore_eos": ignore_eos}).encode()
        request = urllib.request.Request(self.url + "/completion", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def measure(servers, prompts, tokens, ignore_eos):
    sums = {kind: {"tokens": 0, "ms": 0.0, "drafted": 0, "accepted": 0} for kind in servers}
    for prompt in prompts:
        texts = {}
        for kind, server in servers.items():
            answer = server.ask(prompt, tokens, ignore_eos)
            timings = answer["timings"]
            texts[kind] = answer["content"]
            row = sums[kind]
            row["tokens"] += max(timings["predicted_n"] - 1, 0)
            row["ms"] += timings["predicted_ms"]
            row["drafted"] += timings.get("draft_n", 0)
            row["accepted"] += timings.get("draft_n_accepted", 0)
        if len(set(texts.values())) != 1:
            sys.exit(f"texts differ for {prompt!r}: {texts}")
    return sums


def main():
    arguments = sys.argv[1:]
    flags = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, flags = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--kinds", default="off,lookup")
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--ignore-eos", action="store_true", help="texts go on to the last of -n tokens")
    parser.add_argument("--device", default="none", help="where the servers run: none, or a card that holds all of them")
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    servers = {kind: Server(options.build, options.model, kind, options.device, flags) for kind in kinds}
    try:
        for name, prompts in json.load(open(options.prompts)).items():
            measure(servers, prompts, options.n, options.ignore_eos)  # warm
            rounds = [measure(servers, prompts, options.n, options.ignore_eos) for _ in range(options.rounds)]
            for kind in kinds:
                rates = [1e3 * r[kind]["tokens"] / r[kind]["ms"] for r in rounds]
                ratios = [rate / (1e3 * r["off"]["tokens"] / r["off"]["ms"]) for rate, r in zip(rates, rounds)]
                last = rounds[-1][kind]
                print(json.dumps({"texts": name, "draft": kind, "tokens_second": round(statistics.median(rates), 1),
                                  "ratio": round(statistics.median(ratios), 3), "drafted": last["drafted"],
                                  "accepted": last["accepted"], "tokens": last["tokens"],
                                  "ratios": [round(r, 2) for r in ratios]}), flush=True)
    finally:
        for server in servers.values():
            server.stop()


if __name__ == "__main__":
    main()
