#!/usr/bin/env python3
"""Safetensors folders in place of model files: served, planned, measured, converted, and refused by name.

  folder_test.py FOLDER_OF_PROGRAMS FOLDER_OF_MINI_MODELS
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import model_folder  # noqa: E402

BIN, MINI = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
SERVE, BLOOMERY = str(BIN / "bloomery-serve"), str(BIN / "bloomery")
HYBRID, PLAIN = MINI / "qwen35moe", MINI / "qwen3moe"
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("LLAMA_", "BLOOMERY_", "HF_"))} | {"CUDA_VISIBLE_DEVICES": ""}


def run(*arguments):
    return subprocess.run(list(map(str, arguments)), env=ENVIRONMENT, text=True, capture_output=True, timeout=120)


class Server:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([SERVE, "--json", "--port", "0", "-c", "512", *map(str, arguments)],
                                        env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def __enter__(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] in ("ready", "error"):
                break
        assert event["event"] == "ready", event
        self.url = event["url"]
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=60).read())

    def greedy(self):
        asked = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 24}
        return self.ask("/v1/chat/completions", asked)["choices"][0]["message"]


class Folders(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)

    def folder(self, name, mini=HYBRID, model="model.gguf", shards=1, wrapped=False, **changes):
        out = pathlib.Path(self.temp.name) / name
        out.mkdir()
        config = json.loads((mini / "config.json").read_text())
        config.update(changes)
        config = {key: value for key, value in config.items() if value is not None}
        model_folder.write_folder(model_folder.Gguf(mini / model), config, out, shards, wrapped)
        return out

    def test_a_served_folder_answers_as_its_model_file_does(self):
        for mini, folder in ((HYBRID, self.folder("text")), (HYBRID, self.folder("hub", shards=2, wrapped=True)),
                             (PLAIN, self.folder("plain", PLAIN, shards=3))):
            with Server("-m", mini / "model.gguf") as server:
                want, tokens = server.greedy(), server.ask("/tokenize", {"content": "A zebra, Mia said."})
            with Server("-m", folder) as server:
                self.assertEqual(server.greedy(), want)
                self.assertEqual(server.ask("/tokenize", {"content": "A zebra, Mia said."}), tokens)
                model = server.ask("/v1/models")["data"][0]
                self.assertEqual(model["id"], folder.name)

    def test_a_draft_block_of_a_folder_drafts(self):
        folder = self.folder("mtp", model="model-mtp.gguf", wrapped=True)
        with Server("-m", folder) as server:
            want = server.greedy()
        with Server("-m", folder, "--draft", "mtp") as server:
            self.assertEqual(server.greedy(), want)
            asked = {"prompt": "One morning Mia found", "temperature": 0, "n_predict": 32}
            self.assertGreater(server.ask("/completion", asked)["timings"]["draft_n"], 0)

    def test_a_folder_is_planned_and_a_chat_template_file_counts(self):
        folder = self.folder("f")
        (folder / "chat_template.jinja").write_text("{{ messages[0].content }}!")
        plan = json.loads(run(SERVE, "-m", folder, "-c", 512, "--dry-run", "--json").stdout)
        self.assertTrue(plan["ok"])
        self.assertEqual((plan["model"]["n_layers"], plan["model"]["n_experts"]), (4, 8))
        self.assertEqual(plan["chat"]["template"], "file")
        with Server("-m", folder) as server:
            prompt = server.ask("/apply-template", {"messages": [{"role": "user", "content": "abc"}]})["prompt"]
        self.assertEqual(prompt, "abc!")
        # As pages of its files it lies nowhere.
        self.assertIn("--no-mmap", run(SERVE, "-m", folder, "--mmap", "--port", 0).stderr)

    def test_the_split_pattern_of_a_folder_names_its_pre_tokenizer(self):
        folder = self.folder("f")
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        marks = model_folder.SPLIT.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"\s\p{L}", r"\s\p{L}\p{M}")
        for pattern, name in ((marks, "qwen35"), (model_folder.SPLIT, "qwen2")):
            tokenizer["pre_tokenizer"] = model_folder.pre_tokenizer(pattern)
            path.write_text(json.dumps(tokenizer))
            out = folder / "out.gguf"
            self.assertEqual(run(BLOOMERY, "quantize", folder, out, "BF16").returncode, 0)
            self.assertEqual(model_folder.Gguf(out).get("tokenizer.ggml.pre"), name)
        tokenizer["pre_tokenizer"] = model_folder.pre_tokenizer(r"\p{N}{1,3}")
        path.write_text(json.dumps(tokenizer))
        self.refused(folder, "tokenizer.json: its 'pre_tokenizer' splits text in a way")

    def refused(self, folder, text, code=65):
        done = run(SERVE, "-m", folder, "--port", 0, "-c", 512)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)

    def test_bad_configs_are_refused_by_key(self):
        inner = {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e7, "partial_rotary_factor": 0.25}}
        none = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e7}, "partial_rotary_factor": None}
        for i, (changes, text) in enumerate((
                ({"layer_types": ["full_attention"] * 3}, "'layer_types' has 3 values for 4 layers"),
                ({"layer_types": ["sliding_attention"] * 4}, "layer 0 is of the kind 'sliding_attention'"),
                ({"layer_types": ["full_attention"] * 4}, "no tensor 'model.layers.0.self_attn.q_proj.weight'"),
                ({"layer_types": None}, "no key 'full_attention_interval'"),
                ({"linear_num_value_heads": 3}, "model.layers.0.linear_attn.in_proj_qkv.weight': its shape is [512, 128]"),
                ({"linear_num_key_heads": None}, "no key 'linear_num_key_heads'"),
                (inner, "'rope_parameters.rope_type' is not 'default'"),
                (none, "no key 'rope_parameters.partial_rotary_factor' or 'partial_rotary_factor'"),
                ({"mlp_only_layers": [1]}, "'mlp_only_layers' is not []"),
                ({"shared_expert_intermediate_size": 32}, "mlp.shared_expert.gate_proj.weight': its shape is [64, 128]"),
                ({"model_type": "no_such"}, "model type 'no_such'"))):
            self.refused(self.folder(f"c{i}", **changes), text)

    def test_bad_files_are_refused_by_name(self):
        folder = self.folder("f")
        path = folder / "model.safetensors"
        whole = path.read_bytes()
        for data, text in ((whole[:4], "ends inside the header's length"), (whole[:100], "a header of"),
                           (whole[:-2], "data_offsets"), (b"\x08" + bytes(7) + b"notjson!", "model.safetensors"),
                           (b"\x02" + bytes(7) + b"{}", "no tensor 'model.embed_tokens.weight'")):
            path.write_bytes(data)
            self.refused(folder, text)
        tensors = model_folder.folder_tensors(model_folder.Gguf(HYBRID / "model.gguf"))
        name = "model.layers.1.linear_attn.A_log"
        for change, text in (({name: None}, f"no tensor '{name}'"),
                             ({name: ("F8_E4M3", [2], b"00")}, "its type F8_E4M3 is not read"),
                             ({name: ("F7", [2], b"00")}, "dtype 'F7' is not known"),
                             ({name: ("BF16", [2, 2], bytes(8))}, "its shape is [2, 2], the config asks for [2]"),
                             ({name: ("BF16", [2], b"\xc0\x7f\x00\x00")}, "blk.1.ssm_a"),  # not a number
                             ({"model.layers.0.bias": ("BF16", [1], b"00")}, "'model.layers.0.bias'"),
                             ({"mtp.fc.bias": ("BF16", [1], b"00")}, "'mtp.fc.bias'"),
                             ({"model.language_model.norm.weight": tensors["model.norm.weight"]},
                              "is the same part of the model")):
            changed = {k: v for k, v in {**tensors, **change}.items() if v is not None}
            model_folder.write_safetensors(path, changed)
            self.refused(folder, text)
        path.unlink()
        self.refused(folder, "holds neither model.safetensors nor", 66)
        (folder / "config.json").unlink()
        self.refused(folder, "holds no config.json", 66)
        self.refused(folder / "none", "none", 66)

    def test_an_index_that_does_not_fit_is_refused_by_name(self):
        folder = self.folder("f", shards=2)
        index, second = folder / "model.safetensors.index.json", "model-00002-of-00002.safetensors"
        places = json.loads(index.read_text())["weight_map"]
        for change, text in (({"model.norm.weight": None}, "'model.norm.weight' is not placed here"),
                             ({"extra": second}, "no tensor 'extra'"),
                             ({"model.norm.weight": "../" + second}, "no file of this folder")):
            changed = {k: v for k, v in {**places, **change}.items() if v is not None}
            index.write_text(json.dumps({"weight_map": changed}))
            self.refused(folder, text)
        index.write_text(json.dumps({"weight_map": places}))
        (folder / second).write_bytes((folder / second).read_bytes()[:-64])
        self.refused(folder, second)
        (folder / second).unlink()
        self.refused(folder, f"the shard '{second}' is not in the folder")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
