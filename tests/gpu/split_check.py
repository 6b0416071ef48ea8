#!/usr/bin/env python3
"""A server whose model is split between its cards (DEVICE: what -dev takes) and the host: a budget that the whole model does not fit makes a split
by itself, and says so; its texts are the whole card's; slots that it wrote to the disk go on after a restart, over
another split and over the whole card. The model has a real one's shapes, four layers a card and random weights.
Usage: split_check.py BLOOMERY_SERVE BLOOMERY [DEVICE]"""
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

DEVICE = sys.argv[3] if len(sys.argv) > 3 else "CUDA0"
PROMPT = "Tell a story about Sam and a glacier, then about Gina and a hammer, and about Vera and the river. " * 6


MODEL = ""


class Server:
    def __init__(self, flags):
        self.log = ""
        self.process = subprocess.Popen([sys.argv[1], "-m", MODEL, "--port", "0", "-c", "2048", "-np", "1", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url = None
        while self.url is None:
            line = self.process.stdout.readline()
            self.log += line
            if not line:
                sys.exit(f"the server ended before it listened: {flags}\n{self.log}")
            found = re.search(r"http://[0-9.:]+", line)
            self.url = found.group(0) if found else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        deadline = time.time() + 20
        while self.process.poll() is None and time.time() < deadline:
            time.sleep(0.05)
        if self.process.poll() is None:
            self.process.kill()

    def get(self, path):
        return json.load(urllib.request.urlopen(self.url + path, timeout=10))

    def ask(self, prompt):
        body = json.dumps({"prompt": prompt, "temperature": 0, "n_predict": 48}).encode()
        request = urllib.request.Request(self.url + "/completion", body, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=30))


def check(holds, what):
    if not holds:
        sys.exit(what)


def main():
    global MODEL
    with tempfile.TemporaryDirectory() as folder:
        MODEL = folder + "/model.gguf"
        subprocess.run([sys.argv[2], "fixture", "--arch", "qwen3moe", "--layers", str(4 * len(DEVICE.split(","))), "--type", "Q4_K_M", MODEL], check=True,
                       stdout=subprocess.DEVNULL)
        checks()


def checks():
    card = ["-dev", DEVICE]
    with Server(card) as whole:
        expected = whole.ask(PROMPT)["content"]
        plan = next(line for line in whole.log.splitlines() if "plan: card" in line)
        print(plan)
        # One plan a card; the budget is each card's, so the fullest says what is too little.
        sizes = re.findall(r"(?:card|CUDA[0-9]+) plan: .*? = ([0-9.]+) ([MG])iB", plan)
        check(len(sizes) == len(DEVICE.split(",")), "not a plan a card")
        mib = max(float(size) * (1024 if unit == "G" else 1) for size, unit in sizes)
    budget = ["--card-budget", f"{int(mib * 0.8)}MiB"]
    with Server(card + budget) as split:
        check("it is split" in split.log, "the log does not say that the model is split:\n" + split.log)
        check("plan: split on" in split.log, "no split was planned:\n" + split.log)
        print(next(line for line in split.log.splitlines() if "it is split" in line))
        tiers = split.get("/residency")
        print("frames:", [bank["frames"] for bank in tiers["banks"]][:4])
        check(split.ask(PROMPT)["content"] == expected, "a split's text is another than the whole card's")
    with tempfile.TemporaryDirectory() as folder:
        disk = ["--cache-disk", folder]
        with Server(card + disk + ["--n-cpu-moe", "99"]) as first:
            check(first.ask(PROMPT)["content"] == expected, "with all experts on the host the text is another")
        # The last row of a restored slot runs alone, not with its prompt: texts are compared with each other.
        restored = None
        for flags in (["--n-cpu-moe", "99"], budget, []):
            with Server(card + disk + flags) as again:
                answer = again.ask(PROMPT)
                print(flags, "rows from the disk:", answer["timings"]["cache_n"], "of", answer["tokens_evaluated"])
                check(answer["timings"]["cache_n"] > answer["tokens_evaluated"] / 2, f"{flags}: nothing came back from the disk")
                restored = restored or answer["content"]
                check(answer["content"] == restored, f"{flags}: a restored slot goes on with another text")
    off = subprocess.run([sys.argv[1], "-m", MODEL, "--port", "0", "-c", "2048", *card, *budget, "--fit", "off"], capture_output=True,
                         text=True, timeout=60)
    check(off.returncode != 0 and "does not fit" in off.stdout + off.stderr, "--fit off has not refused what does not fit the card")
    print("split: as the whole card")


if __name__ == "__main__":
    main()
