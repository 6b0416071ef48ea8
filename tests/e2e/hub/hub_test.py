#!/usr/bin/env python3
"""Getting models, against a hub on this machine (stand_in.py): what goes well, and each way it can go wrong.

  hub_test.py BLOOMERY_SERVE BLOOMERY

Whatever happens, a file under a model's name is whole and has the digest that was listed.
"""
import hashlib
import json
import os
import pathlib
import random
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from stand_in import Hub, Repo

SERVE, BLOOMERY = sys.argv[1:3]
MODEL = pathlib.Path(SERVE).resolve().parent.parent / "share/bloomery/models/seedling-Q4_K_M.gguf"
TOKEN = "hf_aSecretOfTheUsers"


def some_bytes(seed, count=300_000):
    return random.Random(seed).randbytes(count)


class HubTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.room = pathlib.Path(self.folder.name)
        self.cache = self.room / "cache"
        self.hub = Hub()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(self.hub.stop)

    def environment(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": str(self.room), "HF_ENDPOINT": self.hub.url, "NO_PROXY": "*",
                "BLOOMERY_CACHE": str(self.cache), **more}

    def run_program(self, *command, **more):
        return subprocess.run(command, env=self.environment(**more), capture_output=True, text=True, timeout=120)

    def pull(self, *arguments, code=0, **more):
        """The events of `bloomery pull … --json`, its last one `ready` exactly when it ends with 0."""
        run = self.run_program(BLOOMERY, "pull", *arguments, "--json", **more)
        self.assertEqual(run.returncode, code, run.stderr)
        events = [json.loads(line) for line in run.stdout.splitlines()]
        self.assertEqual(events[-1]["event"], "ready" if code == 0 else "error")
        if code:
            self.assertEqual(events[-1]["code"], code)
            self.assertTrue(events[-1]["next"])
        self.check_cache()
        return events

    def refusal(self, *arguments, code=74, **more):
        return self.pull(*arguments, code=code, **more)[-1]["message"]

    def check_cache(self):
        """Every file with a model's name has a marker, and the marker's digest."""
        for path in self.cache.rglob("*.gguf"):
            marker = json.loads(pathlib.Path(f"{path}.verified").read_text())
            self.assertEqual(marker["digest"], "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest())

    def models(self):
        return sorted(str(p.relative_to(self.cache)) for p in self.cache.rglob("*.gguf"))

    # What goes well.

    def test_a_model_is_listed_picked_fetched_and_checked(self):
        data = some_bytes(1)
        self.hub.repos["own/one"] = Repo({"README.md": b"words", "one-Q4_K_M.gguf": data, "mmproj-one.gguf": b"x"})
        events = self.pull("own/one")
        self.assertEqual(pathlib.Path(events[-1]["path"]).read_bytes(), data)
        self.assertEqual([e["event"] for e in events if e["event"] in ("hf_set", "hf_file", "hf_done")],
                         ["hf_set", "hf_file", "hf_done"])
        self.assertEqual(events[0]["bytes"], len(data))
        again = self.pull("own/one")
        self.assertEqual([e["state"] for e in again if e["event"] == "hf_file"], ["cached"])
        self.assertEqual(len(self.hub.file_requests()), 1)

    def test_the_token_is_for_the_hub_and_not_for_where_it_redirects(self):
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": some_bytes(1)})
        run = self.run_program(BLOOMERY, "pull", "own/one", HF_TOKEN=TOKEN)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn(TOKEN, run.stdout + run.stderr)
        seen = {(r["second"], r["token"]) for r in self.hub.log}
        self.assertEqual(seen, {(False, f"Bearer {TOKEN}"), (True, None)})

    def test_a_saved_token_is_found_and_one_with_a_line_break_is_not_sent(self):
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": some_bytes(1)})
        saved = self.room / ".cache/huggingface/token"
        saved.parent.mkdir(parents=True)
        saved.write_text(TOKEN + "\n")
        self.pull("own/one")
        self.assertEqual(self.hub.log[0]["token"], f"Bearer {TOKEN}")
        self.pull("own/one", HF_TOKEN="a\nInjected: yes")
        self.assertIsNone(self.hub.log[-1]["token"])

    def test_shards_are_one_set_and_the_first_is_what_is_opened(self):
        files = {f"big/big-Q8_0-0000{i}-of-00003.gguf": some_bytes(i) for i in (1, 2, 3)}
        self.hub.repos["own/big"] = Repo(files)
        events = self.pull("own/big")
        self.assertTrue(events[-1]["path"].endswith("big/big-Q8_0-00001-of-00003.gguf"))
        self.assertEqual(len(self.models()), 3)

    def test_a_quant_matches_whole_and_what_is_not_clear_is_refused_with_the_candidates(self):
        files = {f"m-{quant}.gguf": some_bytes(quant) for quant in ("Q6_K", "Q6_K_L", "Q4_K_M")}
        self.hub.repos["own/many"] = Repo(files)
        message = self.refusal("own/many")
        for path in files:
            self.assertIn(path, message)
        self.assertIn("m-Q6_K_L.gguf", self.refusal("own/many:Q6"))
        self.assertEqual(self.hub.file_requests(False), [])
        self.pull("own/many:q6_k")
        self.assertEqual(self.models(), ["own/many/m-Q6_K.gguf"])
        self.pull("own/many", "--hf-file", "m-Q6_K_L.gguf")
        self.assertEqual(len(self.models()), 2)

    def test_what_another_program_has_fetched_is_taken_from_there(self):
        data = some_bytes(1)
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": data})
        blobs = self.room / "hub/models--own--one/blobs"
        blobs.mkdir(parents=True)
        (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
        events = self.pull("own/one", HF_HUB_CACHE=str(self.room / "hub"))
        self.assertEqual([e["state"] for e in events if e["event"] == "hf_file"], ["other-cache"])
        self.assertEqual(self.hub.file_requests(False), [])

    def test_two_at_once_fetch_it_once(self):
        data = some_bytes(1, 4_000_000)
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": data}, fault=slow)
        runs = [subprocess.Popen([BLOOMERY, "pull", "own/one", "--json"], env=self.environment(),
                                 stdout=subprocess.PIPE, text=True) for _ in range(2)]
        outputs = [run.communicate(timeout=60)[0] for run in runs]
        self.assertEqual([run.returncode for run in runs], [0, 0])
        self.assertEqual(len(self.hub.file_requests()), 1)
        self.assertEqual(sum("hf_wait" in output for output in outputs), 1)
        self.check_cache()

    def test_models_are_listed_and_removed(self):
        self.hub.repos["own/many"] = Repo({f"m-{q}.gguf": some_bytes(q) for q in ("Q4_K_M", "Q8_0")})
        self.pull("own/many:Q4_K_M")
        self.pull("own/many:Q8_0")
        listed = json.loads(self.run_program(BLOOMERY, "models", "list", "--json").stdout)
        self.assertEqual([(m["repo"], m["set"], m["complete"]) for m in listed["models"]],
                         [("own/many", "m-Q4_K_M", True), ("own/many", "m-Q8_0", True)])
        self.assertEqual(self.run_program(SERVE, "-cl").stdout,
                         self.run_program(BLOOMERY, "models", "list").stdout)
        self.assertEqual(self.run_program(BLOOMERY, "models", "rm", "own/many:Q8_0").returncode, 0)
        self.assertEqual(self.models(), ["own/many/m-Q4_K_M.gguf"])
        self.assertEqual(self.run_program(BLOOMERY, "models", "rm", "own/many").returncode, 0)
        self.assertEqual(list(self.cache.rglob("*")), [])
        self.assertEqual(self.run_program(BLOOMERY, "models", "rm", "own/many").returncode, 66)
        self.assertEqual(self.run_program(BLOOMERY, "models", "rm", "../../etc").returncode, 64)

    def test_over_tls_the_certificate_counts(self):
        pem = self.room / "own.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", pem, "-out",
                        self.room / "cert.pem", "-days", "2", "-subj", "/CN=own", "-addext",
                        "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.room / "cert.pem", pem)
        hub = Hub(context)
        self.addCleanup(hub.stop)
        hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": some_bytes(1)})
        self.assertIn("not trusted", self.refusal("own/one", HF_ENDPOINT=hub.url))
        self.pull("own/one", HF_ENDPOINT=hub.url, SSL_CERT_FILE=str(self.room / "cert.pem"))
        hub.repos["own/two"] = Repo({"two-Q4_K_M.gguf": some_bytes(2)}, fault=lambda handler, path, start: (
            handler.send(302, b"", {"Location": self.hub.url + handler.path}), True)[1])
        self.assertIn("from https to http", self.refusal(
            "own/two", HF_ENDPOINT=hub.url, SSL_CERT_FILE=str(self.room / "cert.pem")))

    # What goes wrong on the way.

    def test_a_connection_that_is_cut_goes_on_where_it_stopped(self):
        data = some_bytes(1)

        def cuts(handler, path, start):
            if not handler.server.second or start > 200_000:
                return False
            handler.bytes(data, start, 70_000)
            return True
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": data}, fault=cuts)
        events = self.pull("own/one")
        self.assertGreaterEqual(sum(e["event"] == "hf_retry" for e in events), 2)
        starts = [int((r["range"] or "bytes=0-")[6:-1]) for r in self.hub.file_requests()]
        self.assertEqual(starts, sorted(set(starts)))
        self.assertGreater(len(starts), 2)

    def test_a_run_that_was_killed_goes_on_and_then_needs_no_network(self):
        data = some_bytes(1, 4_000_000)
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": data}, fault=slow)
        run = subprocess.Popen([BLOOMERY, "pull", "own/one", "--json"], env=self.environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        part = self.cache / "own/one/one-Q4_K_M.gguf.part"
        end = time.monotonic() + 30
        while time.monotonic() < end and not (part.exists() and part.stat().st_size > 500_000):
            time.sleep(0.01)
        run.kill()
        run.communicate()
        self.assertGreater(part.stat().st_size, 500_000)
        self.assertEqual(self.models(), [])
        self.assertIn("nothing whole", self.refusal("own/one", "--offline"))
        events = self.pull("own/one")
        self.assertEqual([e["state"] for e in events if e["event"] == "hf_file"], ["resume"])
        requests = len(self.hub.log)
        self.pull("own/one", "--offline")
        self.assertEqual(len(self.hub.log), requests)
        events = self.pull("own/one", HF_ENDPOINT="http://127.0.0.1:1")
        self.assertEqual(events[0]["event"], "hf_offline")
        self.assertIn("cannot connect", self.refusal("own/other", HF_ENDPOINT="http://127.0.0.1:1"))

    def test_a_hub_that_ignores_ranges_gives_it_from_the_start(self):
        data = some_bytes(1)
        calls = []

        def ignores(handler, path, start):
            if not handler.server.second:
                return False
            calls.append(start)
            handler.bytes(data, 0, 100_000 if len(calls) == 1 else None)
            return True
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": data}, fault=ignores)
        self.pull("own/one")
        self.assertEqual(calls, [0, 100_000])

    def test_a_range_that_cannot_be_had_is_started_again(self):
        data = some_bytes(1)

        def refuses(handler, path, start):
            if not handler.server.second or not start:
                return False
            handler.send(416, b"")
            return True
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": data}, fault=refuses)
        part = self.cache / "own/one/one-Q4_K_M.gguf.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(data[:1000])
        self.pull("own/one")

    def test_a_part_longer_than_listed_is_started_again(self):
        data = some_bytes(1)
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": data})
        part = self.cache / "own/one/one-Q4_K_M.gguf.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(data + b"more")
        self.pull("own/one")

    def test_a_file_changed_since_it_was_checked_is_fetched_again(self):
        data = some_bytes(1)
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": data})
        path = pathlib.Path(self.pull("own/one")[-1]["path"])
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        run = self.run_program(BLOOMERY, "pull", "own/one", "--offline")
        self.assertEqual(run.returncode, 74)
        events = self.pull("own/one")
        self.assertEqual([e["state"] for e in events if e["event"] == "hf_file"], ["stale"])

    # What a hub may say instead.

    def one_with(self, fault):
        self.hub.repos["own/one"] = Repo({"one-Q4_K_M.gguf": some_bytes(1)}, fault=fault)

    def test_wrong_bytes_are_removed_and_both_digests_named(self):
        data = some_bytes(1)
        wrong = data[:-1] + bytes([data[-1] ^ 1])
        self.one_with(lambda handler, path, start: handler.server.second and (handler.bytes(wrong, start), True)[1])
        message = self.refusal("own/one")
        self.assertIn(hashlib.sha256(data).hexdigest(), message)
        self.assertIn(hashlib.sha256(wrong).hexdigest(), message)
        self.assertEqual(list(self.cache.rglob("*.part")), [])
        self.assertEqual(self.models(), [])

    def test_another_size_than_listed_is_refused(self):
        for count in (299_999, 300_001):
            self.one_with(lambda handler, path, start: handler.server.second and (
                handler.bytes(some_bytes(1, count), start), True)[1])
            self.assertIn(f"lists 300000 bytes and 127.0.0.1 sends {count}", self.refusal("own/one"))
        self.assertEqual(self.models(), [])

    def test_more_bytes_than_listed_end_it_even_unannounced(self):
        def endless(handler, path, start):
            if not handler.server.second:
                return False
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            try:
                for _ in range(10_000):
                    handler.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            except OSError:
                pass
            handler.close_connection = True
            return True
        self.one_with(endless)
        self.assertIn("more than the 300000 bytes", self.refusal("own/one"))
        self.assertEqual(list(self.cache.rglob("*.part")), [])

    def test_refusals_say_what_to_do(self):
        for status, words in ((401, "HF_TOKEN"), (403, "HF_TOKEN"), (404, "nothing of that name")):
            self.one_with(lambda handler, path, start: (handler.send(status, b"no"), True)[1])
            message = self.refusal("own/one")
            self.assertIn(f"answered {status}", message)
            self.assertIn(words, message)
            self.hub.repos["own/closed"] = Repo({"one-Q4_K_M.gguf": b"x"}, status=status)
            self.assertIn(words, self.refusal("own/closed"))
        self.assertIn("has no access", self.refusal("own/closed".replace("closed", "gated"), HF_TOKEN=TOKEN)
                      if self.hub.repos.setdefault("own/gated", Repo({}, status=403)) else "")
        self.assertIn("nothing of that name", self.refusal("own/absent"))

    def test_a_hub_that_stumbles_is_asked_again_and_not_for_ever(self):
        for status in (429, 500, 503):
            calls = []

            def stumbles(handler, path, start):
                calls.append(start)
                if len(calls) > 3:
                    return False
                handler.send(status, b"later", {"Retry-After": "0"})
                return True
            self.one_with(stumbles)
            self.pull("own/one")
            self.assertGreater(len(calls), 3)
            shutil.rmtree(self.cache)
            self.one_with(lambda handler, path, start: (
                handler.send(status, b"later", {"Retry-After": "0"}), True)[1])
            self.assertIn(f"answered {status}", self.refusal("own/one"))
            self.hub.repos["own/closed"] = Repo({"one-Q4_K_M.gguf": b"x"}, status=status)
            self.assertIn(f"answered {status}", self.refusal("own/closed"))

    def test_redirects_end(self):
        self.one_with(lambda handler, path, start: (handler.send(302, b"", {"Location": handler.path}), True)[1])
        self.assertIn("redirects", self.refusal("own/one"))
        for target in ("ftp://127.0.0.1/x", "http://user@127.0.0.1/x", "http://127.0.0.1:99999999/x", ""):
            self.one_with(lambda handler, path, start: (handler.send(302, b"", {"Location": target}), True)[1])
            self.refusal("own/one")

    def test_what_is_no_http_is_refused(self):
        def garbage(handler, path, start):
            handler.wfile.write(b"\x16\x03\x01 not a web server\r\n\r\n")
            handler.close_connection = True
            return True
        self.one_with(garbage)
        self.refusal("own/one")

    def test_listings_that_cannot_be_right_are_refused(self):
        data = some_bytes(1)
        name = "one-Q4_K_M.gguf"
        for listed, words in (({"path": "../../one-Q4_K_M.gguf"}, "no safe path"), ({"path": "/etc/x.gguf"}, "no safe path"),
                              ({"path": "a\\b.gguf"}, "no safe path"), ({"lfs": {"oid": "12", "size": 1}}, "digest"),
                              ({"lfs": {"oid": "0" * 64}}, "size"), ({"lfs": None, "oid": "zz"}, "digest")):
            self.hub.repos["own/one"] = Repo({name: data}, listed={name: listed})
            self.assertIn(words, self.refusal("own/one"))
        for listing in (b"", b"{}", b"[1]", b"[" * 1000, b"<html>"):
            self.hub.repos["own/one"] = Repo({name: data}, listing=listing)
            self.refusal("own/one")
        self.hub.repos["own/one"] = Repo({"b-Q8_0-00001-of-00002.gguf": data})
        self.assertIn("only 1", self.refusal("own/one"))
        self.hub.repos["own/one"] = Repo({"README.md": data})
        self.assertIn("no GGUF", self.refusal("own/one"))
        self.assertEqual(self.models(), [])

    def test_a_disk_too_small_is_known_before_a_byte_is_fetched(self):
        name = "one-Q4_K_M.gguf"
        self.hub.repos["own/one"] = Repo({name: b"x"}, listed={name: {"lfs": {"oid": "0" * 64, "size": 1 << 60}}})
        self.assertIn("free", self.refusal("own/one"))
        self.assertEqual(self.hub.file_requests(False), [])

    def test_names_that_are_none_are_a_usage_error(self):
        for name in ("one", "own/one/two", "../one", "own/..", "own/o ne", "own/one:a:b", "own/one:", "/one", "own/"):
            self.assertEqual(self.run_program(BLOOMERY, "pull", name).returncode, 64, name)

    # The server.

    def test_the_server_gets_its_model_and_tells_a_program_all_the_way(self):
        self.hub.repos["own/seed"] = Repo({"seed-Q4_K_M.gguf": MODEL.read_bytes()})
        dry = self.run_program(SERVE, "--hf", "own/seed", "--dry-run", "--json")
        document = json.loads(dry.stdout)
        self.assertEqual((dry.returncode, document["ok"], document["plan"]), (0, True, None))
        self.assertEqual(document["model"]["files"][0]["state"], "missing")
        self.assertEqual(self.models(), [])
        server = subprocess.Popen([SERVE, "-hf", "own/seed:Q4_K_M", "--port", "0", "--json", "--device", "none"],
                                  env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            events = []
            for line in server.stdout:
                events.append(json.loads(line))
                if events[-1]["event"] in ("ready", "error"):
                    break
            names = [e["event"] for e in events]
            self.assertEqual(names[0], "start")
            self.assertEqual(names[-1], "ready", events[-1])
            for name in ("hf_set", "hf_file", "hf_done", "plan", "load"):
                self.assertIn(name, names)
            self.assertEqual([e["t_ms"] for e in events], sorted(e["t_ms"] for e in events))
            with urllib.request.urlopen(events[-1]["url"] + "/health", timeout=10) as answer:
                self.assertEqual(answer.status, 200)
        finally:
            server.terminate()
            server.communicate(timeout=30)
        self.assertEqual(server.returncode, 0)
        self.check_cache()
        offline = self.run_program(SERVE, "--hf", "own/seed", "--offline", "--dry-run", "--json", HF_ENDPOINT="http://127.0.0.1:1")
        document = json.loads(offline.stdout)
        self.assertEqual((offline.returncode, document["ok"]), (0, True), offline.stderr)
        self.assertGreater(document["plan"]["host"]["need"], 0)

    def test_the_server_ends_with_74_and_names_the_candidates(self):
        self.hub.repos["own/many"] = Repo({f"m-{q}.gguf": some_bytes(q) for q in ("Q4_K_M", "Q8_0")})
        run = self.run_program(SERVE, "--hf", "own/many", "--port", "0", "--json")
        self.assertEqual(run.returncode, 74)
        error = json.loads(run.stdout.splitlines()[-1])
        self.assertEqual((error["event"], error["name"]), ("error", "download"))
        self.assertIn("m-Q8_0.gguf", error["message"])
        self.assertIn("next: ", run.stderr)
        self.assertEqual(self.run_program(SERVE, "--hf", "own/many", "-m", str(MODEL)).returncode, 64)
        self.assertEqual(self.run_program(SERVE, "--hf-file", "x.gguf").returncode, 64)


def slow(handler, path, start):
    """The file in small pieces, so that there is time to look and to kill."""
    if not handler.server.second:
        return False
    hub = handler.server.hub
    data = next(r.files[path] for r in hub.repos.values() if path in r.files)
    rest = data[start:]
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Length", str(len(rest)))
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    handler.end_headers()
    for at in range(0, len(rest), 100_000):
        handler.wfile.write(rest[at:at + 100_000])
        time.sleep(0.02)
    return True


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
