#!/usr/bin/env python3
"""Routing traces of a real server, residency-sim and top, run as programs.

  residency_test.py BLOOMERY BLOOMERY_SERVE
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

BLOOMERY, SERVE = sys.argv[1:3]
EXPERTS, USED = 32, 4
SMALL = ["--set", "width=512", "--set", "heads=4", "--set", "kv_heads=2", "--set", f"experts={EXPERTS}",
         "--set", f"experts_used={USED}", "--set", "ff=256"]
TOKENS = 160


def run(*args, code=0):
    done = subprocess.run([BLOOMERY, *args], capture_output=True, text=True, timeout=200)
    if done.returncode != code:
        raise AssertionError(f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")
    return done.stderr if code else done.stdout


class Server:
    """bloomery-serve of a file; ends in order."""

    def __init__(self, *args):
        self.process = subprocess.Popen([SERVE, *args, "--port", "0", "--json"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "error":
                raise AssertionError(line)
            if event["event"] == "ready":
                self.url = event["url"]
                return
        raise AssertionError("the server ended before it was ready")

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=120) as answer:
            return answer.read().decode()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.process.stdout.close()


def picks_of(path):
    """Rows of each pass of a trace and their picks, read by the documented layout."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"BLRTRACE"
    word = lambda at: int.from_bytes(data[at:at + 4], "little")
    banks = [(word(20 + 12 * i), word(24 + 12 * i)) for i in range(word(12))]  # experts, used
    at = 16 + 12 * len(banks) + 8
    passes = []
    while word(at) > 0:
        rows, payload = word(at), at + 8 + word(at)
        picks = []
        for experts, used in banks:
            bits, count = (experts - 1).bit_length(), rows * used
            size = (count * bits + 7) // 8
            value = int.from_bytes(data[payload:payload + size], "little")
            picks.append([value >> i * bits & (1 << bits) - 1 for i in range(count)])
            payload += size
        passes.append((rows, picks))
        at += 8 + word(at + 4) + 8
    return banks, passes


class Residency(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def traced(self, name, *args):
        """Serves a fixture made with `args`, decodes greedily, and gives the trace's path."""
        model, trace = self.path(name + ".gguf"), self.path(name + ".trace")
        run("fixture", "--arch", "qwen3moe", "--layers", "3", *SMALL, *args, model)
        server = Server("-m", model, "--device", "none", "-c", "1024", "--routing-trace", trace)
        try:
            # Bias keeps the answer from ending, or from saying one token for ever.
            server.ask("/completion", {"prompt": "One morning Mia found a zebra.", "n_predict": TOKENS,
                                       "temperature": 0, "ignore_eos": True, "repeat_penalty": 1.5,
                                       "repeat_last_n": 64})
            self.look(server, trace)
        finally:
            server.end()
        return trace

    def look(self, server, trace):
        residency = json.loads(server.ask("/residency"))
        self.assertIsNone(residency["residency"])
        self.assertEqual(residency["trace"]["file"], trace)
        self.assertGreaterEqual(residency["times"]["passes"], TOKENS)
        self.assertGreater(residency["times"]["host_seconds"], 0)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            server.ask("/residency/reset", {})
        self.assertEqual(refused.exception.code, 501)
        self.assertIn("one place", refused.exception.read().decode())
        top = run("top", "--url", server.url, "--once")
        self.assertIn("policy none", top)
        self.assertIn("all experts lie in one memory", top)
        line = json.loads(run("top", "--url", server.url, "--once", "--json"))
        self.assertEqual(len(line["residency"]["banks"]), 3)
        self.assertIn('bloomery:pass_seconds_total{cause="host"}', server.ask("/metrics"))

    def statistics(self, trace):
        return json.loads(run("residency-sim", trace, "--json").splitlines()[0])

    def test_decoding_shows_the_locality_and_persistence_of_the_fixture(self):
        topics = self.traced("topics", "--locality", "0.8", "--persistence", "0.9")
        even = self.traced("even")
        banks, passes = picks_of(topics)
        self.assertEqual(banks, [(EXPERTS, USED)] * 3)
        decode = [picks for rows, picks in passes if rows == 1]
        self.assertGreaterEqual(len(decode), TOKENS - 1)
        # Counted here, from the file, and the same by residency-sim.
        repeated = [len(set(now[bank]) & set(before[bank])) / USED
                    for before, now in zip(decode, decode[1:]) for bank in range(3)]
        found = sum(repeated) / len(repeated)
        self.assertAlmostEqual(self.statistics(topics)["repeated"], found, delta=0.02)
        # Of rows that know nothing of each other, USED / EXPERTS.
        self.assertGreater(found, 3 * USED / EXPERTS)
        self.assertLess(self.statistics(even)["repeated"], found - 0.15)

    def test_policies_are_compared_on_a_trace_and_alike_each_time(self):
        trace = self.traced("topics", "--locality", "0.8", "--persistence", "0.9")
        args = ["residency-sim", trace, "--frames", "8,16", "--json"]
        text = run(*args)
        self.assertEqual(text, run(*args))
        rows = [json.loads(line) for line in text.splitlines()][1:]
        self.assertEqual([row["policy"] for row in rows], ["off", "payback", "lru", "lfu", "belady"] * 2)
        for frames in (8, 16):
            hits = {row["policy"]: row["decode_hit_rate"] for row in rows if row["frames"] == frames}
            self.assertEqual(max(hits, key=hits.get), "belady")
        self.assertIn("| belady", run("residency-sim", trace, "--frames", "8"))

    def test_what_is_no_trace_is_refused_with_the_byte(self):
        trace = self.traced("topics", "--locality", "0.5")
        data = bytearray(pathlib.Path(trace).read_bytes())
        data[len(data) // 2] ^= 1
        pathlib.Path(trace).write_bytes(data)
        refusal = run("residency-sim", trace, code=65)
        self.assertRegex(refusal, r"byte \d+: ")
        self.assertIn("byte 0: no routing trace", run("residency-sim", self.path("topics.gguf"), code=65))
        self.assertIn("--policy mru", run("residency-sim", trace, "--policy", "mru", code=64))
        self.assertIn("--persistence", run("fixture", "--arch", "qwen3moe", "--persistence", "0.5", self.path("x"),
                                           code=64))
        self.assertIn("--even", run("fixture", "--arch", "qwen3moe", "--even", "--locality", "0.5", self.path("x"),
                                    code=64))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
