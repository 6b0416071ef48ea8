#!/usr/bin/env python3
"""What docs/agents.md promises to programs, asked of the programs: documents, event lines, codes, scripts.

  agents_test.py FOLDER_OF_PROGRAMS
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

BIN = pathlib.Path(sys.argv[1])
SERVE = str(BIN / "bloomery-serve")
DOCS = pathlib.Path(__file__).parents[3] / "docs"
MODEL = BIN.parent / "share/bloomery/models/seedling-Q4_K_M.gguf"
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("LLAMA_", "BLOOMERY_", "HF_"))} | {"CUDA_VISIBLE_DEVICES": "", "LLAMA_ARG_PORT": "0"}


def run(*arguments, **more):
    return subprocess.run([SERVE, *map(str, arguments)], env=ENVIRONMENT | more, text=True, capture_output=True,
                          timeout=60)


class AgentsTest(unittest.TestCase):
    def document(self, *arguments, code=0, **more):
        done = run(*arguments, "--json", **more)
        self.assertEqual(done.returncode, code, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 1)
        return json.loads(lines[0])

    def error(self, *arguments, code, **more):
        """The last line of a start that is refused."""
        done = run(*arguments, "--json", **more)
        self.assertEqual(done.returncode, code, done.stderr)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([e["event"] for e in events].count("error"), 1)
        self.assertEqual((events[-1]["event"], events[-1]["code"]), ("error", code))
        self.assertIn(events[-1]["message"].splitlines()[0], done.stderr)
        self.assertIn("next: " + events[-1]["next"], done.stderr)
        self.assertTrue(events[-1]["next"].startswith("bloomery"))
        return events[-1]

    def test_recommend_ranks_what_fits_first_and_has_a_command_that_plans(self):
        document = self.document("--recommend")
        self.assertEqual(set(document), {"schema", "host", "devices", "models", "pick"})
        fits = [m["fit"] == "whole" for m in document["models"]]
        self.assertEqual(fits, sorted(fits, reverse=True))
        self.assertEqual(document["pick"], document["models"][0]["name"])
        seedling = next(m for m in document["models"] if m["name"] == "seedling")
        self.assertEqual((seedling["fit"], seedling["cached"]), ("whole", True))
        self.document(*seedling["command"][1:], "--dry-run")
        self.document("-m", "seedling", "--dry-run")
        self.assertIn("seedling", run("--recommend").stdout)

    def test_a_plan_that_fits_and_one_that_does_not(self):
        fits = self.document("--dry-run", "-c", 512, "-np", 2, "--api-key", "hidden")
        self.assertTrue(fits["ok"])
        host = fits["plan"]["host"]
        self.assertEqual(host["need"], sum(host["terms"].values()))
        self.assertLessEqual(host["need"], host["free"])
        self.assertEqual([s["n_ctx"] for s in fits["slots"]], [256, 256])
        self.assertEqual(fits["settings"]["ctx-size"], {"value": "512", "source": "flag"})
        self.assertEqual(fits["settings"]["api-key"]["value"], "***")
        self.assertEqual(fits["model"]["n_layers"], 6)
        refused = self.document("--dry-run", "-lm", "none", "--host-budget", "1MiB", code=78)
        self.assertFalse(refused["ok"])
        self.assertEqual(refused["error"]["name"], "plan")
        plan = refused["error"]["terms"][-1]
        self.assertFalse(plan["fits"])
        self.assertGreater(plan["need"], plan["free"])
        self.assertIn("weights", plan["terms"])
        # The start ends with the same code and terms.
        error = self.error("-lm", "none", "--host-budget", "1MiB", "--port", 0, code=78)
        self.assertEqual(error["terms"][-1], plan)

    def test_drafts_that_were_asked_for_are_in_the_plan(self):
        def draft(*arguments):
            return self.document("-m", MODEL, "--dry-run", "-c", 512, *arguments)["draft"]
        self.assertIsNone(draft())
        self.assertIsNone(draft("--draft", "off"))
        self.assertIsNone(draft("--draft", "lookup", "--draft-max", 0))
        self.assertEqual(draft("--draft", "lookup", "--draft-max", 4, "--draft-min", 2),
                         {"kind": "lookup", "tokens_max": 4, "tokens_min": 2, "p_min": 0})

    def test_slots_are_counted_by_what_fits(self):
        def slots(*arguments):
            return [slot["n_ctx"] for slot in self.document("-m", MODEL, "--dry-run", *arguments)["slots"]]
        self.assertEqual(slots("--slot-ctx", 512), [512])
        self.assertEqual(slots("--slot-ctx", 512, "-np", 3), [512] * 3)
        self.assertEqual(slots("--slot-ctx", 512, "-np", "auto"), [512] * 4)
        self.assertEqual(slots("--slot-ctx", 512, "-np", -1), [512] * 4)
        self.assertEqual(slots("--slot-ctx", 512, "-c", 1100, "-np", "auto"), [512] * 2)
        self.assertEqual(slots("-c", 1024, "-np", "auto"), [1024])
        # Room for the planes of one slot more and not of two.
        def total(count):
            plan = self.document("-m", MODEL, "--dry-run", "--slot-ctx", 2048, "-np", count)["plan"]
            return sum(plan["host"]["terms"].values())
        budget = (total(2) + total(3)) // 2
        self.assertEqual(slots("--slot-ctx", 2048, "-np", "auto", "--host-budget", budget), [2048] * 2)
        refused = self.document("-m", MODEL, "--dry-run", "--slot-ctx", 1024, "-c", 2047, "-np", 2, code=64)
        self.assertIn("--slot-ctx", refused["error"]["message"])

    def test_a_plan_by_its_own_command_predicts_once_the_machine_is_measured(self):
        with tempfile.TemporaryDirectory() as cache:
            environment = ENVIRONMENT | {"XDG_CACHE_HOME": cache}

            def bloomery(*arguments):
                return subprocess.run([str(BIN / "bloomery"), *map(str, arguments)], env=environment, text=True,
                                      capture_output=True, timeout=100)
            plan = json.loads(bloomery("plan", MODEL, "-c", 512, "--json").stdout)["plan"]
            self.assertEqual((plan["place"], plan["predicted"]), ("host", None))
            self.assertTrue(plan["line"].startswith("plan: host; 1 slot of 512 rows, ubatch 512; host plan: weights "))
            doctor = json.loads(bloomery("doctor", "--json", "-m", MODEL).stdout)
            self.assertTrue(doctor["rates_measured"])
            self.assertEqual(doctor["rates_file"], f"{cache}/bloomery/rates.json")
            for rate in ("host_read", "host_macs", "file_read"):
                self.assertGreater(doctor["rates"][rate], 1e8)
            self.assertGreater(doctor["rates"]["experts"]["expert_us"], 1)
            self.assertIn("no_cards", doctor)
            self.assertEqual([p["what"] for p in doctor["problems"]], [])
            predicted = json.loads(bloomery("plan", MODEL, "-c", 512, "--json").stdout)["plan"]["predicted"]
            self.assertGreater(predicted["decode"], 1)
            self.assertEqual(predicted["decode_by"], "the host")
            again = bloomery("plan", MODEL, "-c", 512)
            self.assertRegex(again.stdout, r"^plan: host; .*: it fits\npredicted: decode [0-9.]+ tok/s at depth 0 ")
            quick = bloomery("doctor", "--quick")
            self.assertIn("measured before", quick.stdout)
            self.assertIn("nothing is wrong", quick.stdout)
            refused = bloomery("plan", MODEL, "-lm", "none", "--host-budget", "1MiB")
            self.assertEqual(refused.returncode, 78)
            self.assertIn("planes k", refused.stderr)
            both = bloomery("plan", MODEL, "--place", "card", "--cpu-moe")
            self.assertEqual(both.returncode, 64)
            self.assertIn("--place card", both.stderr)
            self.assertIn("--cpu-moe", both.stderr)
            self.assertEqual(bloomery("plan", MODEL, "--place", "split").returncode, 69)  # no card here

    def test_a_start_tells_its_way_to_ready(self):
        server = subprocess.Popen([SERVE, "--port", "0", "--json", "--api-key", "hidden"], env=ENVIRONMENT, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        events = []
        for line in server.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] in ("ready", "error"):
                break
        try:
            self.assertEqual(events[-1]["event"], "ready", events[-1])
            self.assertEqual(events[0]["event"], "start")
            self.assertEqual(events[0]["argv"], ["--port", "0", "--json", "--api-key", "***"])
            self.assertEqual(events[-1]["pid"], server.pid)
            with urllib.request.urlopen(events[-1]["url"] + "/health", timeout=10) as answer:
                self.assertEqual(answer.status, 200)
        finally:
            server.terminate()
            rest, stderr = server.communicate(timeout=30)
        self.assertEqual((server.returncode, rest), (0, ""))
        self.assertNotIn("hidden", stderr)

    def test_refusals_have_their_codes_and_a_command_to_run_next(self):
        self.assertIn("--frobnicate", self.error("--frobnicate", code=64)["message"])
        self.assertIn("seedling", self.error("-m", "no-such-name", code=64)["message"])
        self.error("-m", "/no/such/file.gguf", code=66)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as text:
            text.write(b"this is no model")
            text.flush()
            self.error("-m", text.name, "--port", 0, code=65)
            self.document("-m", text.name, "--dry-run", code=65)
        with socket.create_server(("127.0.0.1", 0)) as busy:
            error = self.error("--port", busy.getsockname()[1], code=71)
            self.assertEqual(error["name"], "bind")
        self.error("--device", "CUDA0", "--port", 0, code=69)

    def test_without_any_plugin_it_is_2(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "bin").mkdir()
            program = shutil.copy(SERVE, f"{folder}/bin/bloomery-serve")
            done = subprocess.run([program, "-m", MODEL, "--port", "0", "--json"], env=ENVIRONMENT, text=True,
                                  capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(json.loads(done.stdout.splitlines()[-1])["name"], "no_engine")

    def test_every_event_that_is_written_is_documented(self):
        page = (DOCS / "agents.md").read_text()
        for source in (DOCS.parent / "runtime/apps").rglob("*.cc"):
            for event in re.findall(r'Write\(\s*"(\w+)"', source.read_text()):
                self.assertIn(f"| `{event}` |", page, f"{source}: {event}")

    def test_scripts_of_the_shells_are_well_formed(self):
        for shell, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])):
            script = run(f"--completion-{shell}").stdout
            self.assertIn("host-budget", script)
            if shutil.which(check[0]):
                with tempfile.NamedTemporaryFile("w") as file:
                    file.write(script)
                    file.flush()
                    subprocess.run([*check, file.name], check=True)
        # What bash offers.
        words = subprocess.run(["bash", "-c", f'''source <("{SERVE}" --completion-bash)
            COMP_WORDS=(bloomery-serve --cache-type-k q); COMP_CWORD=2; _bloomery_serve; echo "${{COMPREPLY[*]}}"
            COMP_WORDS=(bloomery-serve --dry-r); COMP_CWORD=1; _bloomery_serve; echo "${{COMPREPLY[*]}}"'''],
                               capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertEqual(words, ["q8_0", "--dry-run"])
        self.assertTrue(run("--man").stdout.startswith(".TH BLOOMERY"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
