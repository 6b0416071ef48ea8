#!/usr/bin/env python3
"""fixture, quantize, bench and perplexity, run as programs.

  tools_test.py BLOOMERY MINI     MINI: the folder of the mini model and its goldens
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BLOOMERY, MINI = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL, GOLDEN = str(MINI / "model.gguf"), str(MINI / "golden.safetensors")
EVAL = json.loads((MINI / "golden.json").read_text())["eval"]
# Sizes that fit a test and every block type; names, types and rules are those of the recipe.
SMALL = ["--set", "width=256", "--set", "heads=4", "--set", "kv_heads=2", "--set", "experts=16",
         "--set", "experts_used=4", "--set", "ff=256"]


def run(*args, code=0):
    done = subprocess.run([BLOOMERY, *args], capture_output=True, text=True, timeout=200)
    if done.returncode != code:
        raise AssertionError(f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")
    return done.stderr if code else done.stdout


def scores(*args):
    lines = run("perplexity", *args).splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines)}


class Tools(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def fixture(self, name, *args):
        run("fixture", "--arch", "qwen3moe", "--layers", "2", *SMALL, *args, self.path(name))
        return self.path(name)

    def test_perplexity_of_the_mini_model_is_the_goldens(self):
        got = scores("-m", MODEL, "--ids", GOLDEN, "-ctk", "f32", "-ctv", "f32")
        self.assertAlmostEqual(got["mean_nll"], EVAL["mean_nll"], delta=2e-6)
        self.assertAlmostEqual(got["ppl"], EVAL["ppl"], delta=4e-6)
        for i, nll in enumerate(EVAL["rows"]):
            self.assertAlmostEqual(got[f"row_{i}_nll"], nll, delta=2e-6)

    def test_quantised_mini_models_stay_near_their_source(self):
        base = self.path("base.safetensors")
        scores("-m", MODEL, "--ids", GOLDEN, "--base-out", base)
        # Q8_0 by the tolerance of the oracle set; four bits: far from it, and far from noise.
        for kind, nll, kl in (("BF16", 1e-6, 1e-9), ("Q8_0", 5e-4, 1e-3), ("Q4_0", 0.05, 0.05),
                              ("IQ4_NL", 0.05, 0.05), ("MXFP4", 0.1, 0.1),
                              # Its rows fit no block of 256: Q5_0 and Q5_1 stand in, with Q8_0.
                              ("Q4_K_M", 0.01, 0.01), ("Q5_K_M", 0.01, 0.01), ("Q6_K", 5e-4, 1e-3)):
            out = self.path(kind + ".gguf")
            run("quantize", MODEL, out, kind)
            got = scores("-m", out, "--ids", GOLDEN, "--base", base)
            self.assertAlmostEqual(got["mean_nll"], EVAL["mean_nll"], delta=nll + 1e-5, msg=kind)
            self.assertLessEqual(abs(got["mean_kl"]), kl, kind)
        self.assertEqual(os.path.getsize(self.path("BF16.gguf")) // 4096, os.path.getsize(MODEL) // 4096)

    def test_fixture_runs_in_every_type(self):
        for kind in ("Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "Q4_0", "IQ4_NL", "MXFP4", "BF16"):
            path = self.fixture(kind + ".gguf", "--type", kind)
            rows = [json.loads(line) for line in
                    run("bench", "-m", path, "-p", "32", "-n", "4", "-d", "8", "-r", "2", "-o", "json").splitlines()]
            self.assertEqual([row["test"] for row in rows], ["pp32 @ d8", "tg4 @ d8"], kind)
            for row in rows:
                self.assertEqual(len(row["samples_ts"]), 2)
                self.assertGreater(row["median_ts"], 0)
                self.assertEqual(row["file"], kind + ".gguf")

    def test_fixture_predicts_nothing_and_stays_finite(self):
        text = self.path("text")
        pathlib.Path(text).write_text("One morning Mia found a zebra near the saddle. " * 20)
        got = scores("-m", self.fixture("f.gguf", "--locality", "0.7"), "--file", text, "-c", "64")
        # 4,096 ids: even chances give 8.32; logits of deviation one lose about half a nat more.
        self.assertTrue(8.0 < got["mean_nll"] < 9.5, got)

    def test_fixture_is_the_same_again(self):
        a, b = self.fixture("a.gguf"), self.fixture("b.gguf", "-t", "1")
        self.assertEqual(pathlib.Path(a).read_bytes(), pathlib.Path(b).read_bytes())

    def test_refusals_name_what_is_wrong(self):
        self.assertIn("'no_such'", run("fixture", "--arch", "no_such", self.path("x"), code=65))
        self.assertIn("it has", run("fixture", "--arch", "qwen3moe", "--set", "wide=1", self.path("x"), code=64))
        self.assertIn("tokens already", run("fixture", "--arch", "qwen3moe", "--vocab", "9", *SMALL, self.path("x"), code=64))
        self.assertIn("known: F32", run("quantize", MODEL, self.path("x"), "Q9", code=64))
        self.assertIn("OUT is a file of IN", run("quantize", MODEL, MODEL, "Q8_0", code=64))
        self.assertIn("is a folder", run("quantize", str(MINI), self.path("x"), "Q8_0", code=65))
        self.assertIn("cannot write", run("quantize", MODEL, self.path("none/x"), "Q8_0", code=66))
        self.assertIn("give one of", run("perplexity", "-m", MODEL, code=64))
        self.assertIn("'none'", run("perplexity", "-m", MODEL, "--ids", GOLDEN, "--tensor", "none", code=65))
        self.assertIn("nothing to measure", run("bench", "-m", MODEL, "-p", "0", "-n", "0", code=64))
        self.assertEqual(os.listdir(self.folder.name), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
