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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import model_folder  # noqa: E402

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

    def model_folder(self, name="hf", shards=2, **changes):
        """The mini model as a safetensors folder; None takes a key out of its config."""
        out = pathlib.Path(self.path(name))
        out.mkdir()
        config = json.loads((MINI / "config.json").read_text())
        config.update(changes)
        config = {key: value for key, value in config.items() if value is not None}
        model_folder.write_folder(model_folder.Gguf(MODEL), config, out, shards)
        return out

    def test_safetensors_folder_becomes_the_model_file_it_came_from(self):
        want = model_folder.Gguf(MODEL)
        # As older and as newer hubs write the config, in one file and in several.
        older = {"num_local_experts": None, "num_experts": 8, "rope_parameters": None, "rope_theta": 1e6}
        for shards, changes in ((1, {}), (3, older)):
            folder, out = self.model_folder(f"hf{shards}", shards, **changes), self.path(f"{shards}.gguf")
            said = run("quantize", str(folder), out, "BF16")
            self.assertIn("F32 16 BF16 23", said)
            got = model_folder.Gguf(out)
            # One by one: unittest takes minutes to show where megabytes differ.
            self.assertEqual(sorted(got.tensors), sorted(want.tensors))
            for name, tensor in want.tensors.items():
                self.assertTrue(got.tensors[name] == tensor, name)
            self.assertEqual(sorted(set(got.keys) | {"general.license"}), sorted(want.keys))
            for key in set(got.keys) - {"general.name"}:
                self.assertTrue(got.keys[key] == want.keys[key], key)
        got = scores("-m", out, "--ids", GOLDEN, "-ctk", "f32", "-ctv", "f32")
        self.assertAlmostEqual(got["mean_nll"], EVAL["mean_nll"], delta=2e-6)

    def test_quantising_a_folder_is_quantising_its_model_file(self):
        folder = self.model_folder()
        for kind in ("Q4_K_M", "F32"):
            run("quantize", str(folder), self.path("a"), kind)
            run("quantize", MODEL, self.path("b"), kind, "-t", "1")
            got = scores("-m", self.path("a"), "--ids", GOLDEN)
            self.assertEqual(got, scores("-m", self.path("b"), "--ids", GOLDEN))

    def test_bad_folders_are_refused_by_name(self):
        def refused(folder, *texts, code=65):
            said = run("quantize", str(folder), self.path("x"), "Q8_0", code=code)
            for text in texts:
                self.assertIn(text, said)
            self.assertFalse(os.path.exists(self.path("x")))

        second = "model-00002-of-00002.safetensors"
        folder = self.model_folder("shard")
        (folder / second).unlink()
        refused(folder, second, "is not in the folder")
        folder = self.model_folder("index")
        index = folder / "model.safetensors.index.json"
        places = json.loads(index.read_text())["weight_map"]
        for name, place, text in (("model.norm.weight", "../" + second, "no file of this folder"),
                                  ("extra", second, "no tensor 'extra'"),
                                  ("model.norm.weight", None, "'model.norm.weight' is not placed here")):
            changed = dict(places)
            changed[name] = place
            if place is None:
                del changed[name]
            index.write_text(json.dumps({"weight_map": changed}))
            refused(folder, text)
        folder = self.model_folder("cut", 1)
        data = (folder / "model.safetensors").read_bytes()
        for end, text in ((4, "ends inside the header"), (500, "a header of"), (len(data) - 2, "data_offsets")):
            (folder / "model.safetensors").write_bytes(data[:end])
            refused(folder, "model.safetensors", text)
        for changes, text in (({"head_dim": 64}, "model.layers.0.self_attn.q_proj.weight"),
                              ({"head_dim": None}, "no key 'head_dim'"),
                              ({"num_local_experts": 9}, "'model.layers.0.mlp.gate.weight': its shape is [8, 128]"),
                              ({"num_hidden_layers": 4}, "no tensor 'model.layers.3.input_layernorm.weight'"),
                              ({"num_hidden_layers": 2}, "'model.layers.2."),
                              ({"vocab_size": 2011}, "model.embed_tokens.weight': its shape is [2012, 128]"),
                              # Refused before room for so many tokens is asked for.
                              ({"vocab_size": 2**32 - 1}, "model.embed_tokens.weight': its shape is [2012, 128]"),
                              ({"num_hidden_layers": 4096, "num_local_experts": 65536}, "more than 1048576 tensors"),
                              ({"norm_topk_prob": False}, "'norm_topk_prob' is not true"),
                              ({"norm_topk_prob": None}, "'norm_topk_prob' is not true"),
                              ({"rope_scaling": {"type": "yarn"}}, "'rope_scaling.type' is not 'default'"),
                              ({"mlp_only_layers": [0]}, "'mlp_only_layers' is not []"),
                              ({"hidden_size": "wide"}, "hidden_size"),
                              ({"model_type": "no_such"}, "model type 'no_such'"),
                              ({"model_type": None}, "model_type")):
            refused(self.model_folder("config" + str(len(os.listdir(self.folder.name))), 1, **changes), text)
        # A tied head is not written, whether or not the folder has one.
        tied = self.model_folder("tied", 1, tie_word_embeddings=True)
        run("quantize", str(tied), self.path("tied.gguf"), "BF16")
        self.assertNotIn("output.weight", model_folder.Gguf(self.path("tied.gguf")).tensors)

    def test_bad_tensors_and_tokenizers_of_folders_are_refused_by_name(self):
        folder = self.model_folder("hf", 1)
        tensors = model_folder.folder_tensors(model_folder.Gguf(MODEL))
        name = "model.layers.1.mlp.experts.3.up_proj.weight"
        dtype, shape, data = tensors[name]

        def refused(change, text, code=65):
            changed = dict(tensors)
            changed.update(change)
            model_folder.write_safetensors(folder / "model.safetensors",
                                           {k: v for k, v in changed.items() if v is not None})
            said = run("quantize", str(folder), self.path("x"), "Q8_0", code=code)
            self.assertIn(text, said)
            if name in change:
                self.assertIn(name, said)

        refused({name: None}, "no tensor")
        refused({name: (dtype, shape[::-1], data)}, "its shape is [128, 64], the config asks for [64, 128]")
        refused({name: ("F32", shape, data * 2)}, "is not that of")
        refused({name: ("I16", shape, data)}, "I16 is not read")
        refused({name: ("F7", shape, data)}, "F7")
        refused({"model.layers.0.bias": ("F32", [1], b"0000")}, "'model.layers.0.bias'")
        table = "model.embed_tokens.weight"
        refused({table: (*tensors[table][:2], b"\xc0\x7f" + tensors[table][2][2:])},  # a NaN
                "tensor 'token_embd.weight', row 0, value 0")
        model_folder.write_safetensors(folder / "model.safetensors", tensors)
        path = folder / "tokenizer.json"
        good = json.loads(path.read_text())
        for field, value, text in (("type", "Unigram", "byte-level BPE"), ("vocab", {"a": 0, "b": 0}, "id 0 is both"),
                                   ("vocab", {"a": -1}, "not below the vocabulary"),
                                   ("vocab", {"a": 2012}, "not below the vocabulary of 2012"), ("merges", ["ab"], "merge 0"),
                                   ("merges", [["a", ""]], "merge 0"), ("vocab", None, "'model.vocab'")):
            bad = json.loads(json.dumps(good))
            bad["model"][field] = value
            path.write_text(json.dumps(bad))
            self.assertIn(text, run("quantize", str(folder), self.path("x"), "Q8_0", code=65))
        path.write_text("{")
        self.assertIn("tokenizer.json", run("quantize", str(folder), self.path("x"), "Q8_0", code=65))
        path.unlink()
        self.assertIn("tokenizer.json", run("quantize", str(folder), self.path("x"), "Q8_0", code=66))

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

    def test_types_without_kernels_are_refused_at_load_with_what_would_run(self):
        # Types of the same size as the tensor's own, so that nothing else is wrong with the file.
        for name, kind, said in (("blk.2.attn_q.weight", 25, ("is I16", "it has F32, F16, Q4_0")),
                                 ("blk.0.ffn_up_exps.weight", 25, ("layer 0", "is I16", "NVFP4")),
                                 ("blk.1.ffn_gate_inp.weight", 26, ("is I32", "it has F32")),
                                 ("token_embd.weight", 25, ("is I16", "it has F32")),
                                 ("output.weight", 25, ("is I16", "it has F32")),
                                 ("blk.1.attn_norm.weight", 26, ("I32 [128] must be F32",)),
                                 ("blk.0.attn_v.weight", 15, ("its type 15 is not known", "known are F32"))):
            path = self.path("retyped.gguf")
            pathlib.Path(path).write_bytes(model_folder.retyped(MODEL, name, kind))
            refusal = run("perplexity", "-m", path, "--ids", GOLDEN, code=65)
            for text in (f"'{name}'", *said):
                self.assertIn(text, refusal)

    def test_refusals_name_what_is_wrong(self):
        self.assertIn("'no_such'", run("fixture", "--arch", "no_such", self.path("x"), code=65))
        self.assertIn("it has", run("fixture", "--arch", "qwen3moe", "--set", "wide=1", self.path("x"), code=64))
        self.assertIn("tokens already", run("fixture", "--arch", "qwen3moe", "--vocab", "9", *SMALL, self.path("x"), code=64))
        self.assertIn("known: F32", run("quantize", MODEL, self.path("x"), "Q9", code=64))
        self.assertIn("OUT is a file of IN", run("quantize", MODEL, MODEL, "Q8_0", code=64))
        self.assertIn("holds neither model.safetensors nor", run("quantize", str(MINI), self.path("x"), "Q8_0", code=66))
        self.assertIn("cannot write", run("quantize", MODEL, self.path("none/x"), "Q8_0", code=66))
        self.assertIn("give one of", run("perplexity", "-m", MODEL, code=64))
        self.assertIn("'none'", run("perplexity", "-m", MODEL, "--ids", GOLDEN, "--tensor", "none", code=65))
        self.assertIn("nothing to measure", run("bench", "-m", MODEL, "-p", "0", "-n", "0", code=64))
        self.assertEqual(os.listdir(self.folder.name), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
