#!/usr/bin/env python3
"""The server as those who run it see it: TLS, the log, keys in it, a service manager, stops, sockets.

  operations_test.py FOLDER_OF_PROGRAMS
"""
import configparser
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(sys.argv[1])
SERVE = str(BIN / "bloomery-serve")
KEY = "sk-a-key-that-no-log-may-have"
CONFIG = tempfile.NamedTemporaryFile(suffix=".ini")  # empty: the machine's settings do not matter
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("LLAMA_", "BLOOMERY_", "HF_", "NOTIFY_", "WATCHDOG_"))} | {
                   "CUDA_VISIBLE_DEVICES": "", "BLOOMERY_CONFIG": CONFIG.name}


class Server:
    """A running bloomery-serve; its log is whole after stop()."""

    def __init__(self, *arguments, **environment):
        self.process = subprocess.Popen([SERVE, "--json", "--port", "0", *map(str, arguments)],
                                        env=ENVIRONMENT | environment, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.log = ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.out = []
        for line in self.process.stdout:
            self.out.append(line)
            self.ready = json.loads(line)
            if self.ready["event"] in ("ready", "error"):
                break
        self.port = int(self.ready["url"].rsplit(":", 1)[1]) if self.ready.get("url", "").startswith("http") else 0

    def read(self):
        for line in self.process.stderr:
            self.log += line

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(timeout=60)
        self.reader.join()
        self.out += self.process.stdout.readlines()
        self.process.stdout.close()
        self.process.stderr.close()
        return code


def post(connection, path, body, headers=None):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"} | (headers or {}))
    return connection.getresponse()


class OperationsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.room = pathlib.Path(cls.folder.name)
        for name in ("own", "other"):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", cls.room / f"{name}.key",
                            "-out", cls.room / f"{name}.crt", "-days", "2", "-subj", "/CN=own", "-addext",
                            "subjectAltName=IP:127.0.0.1,DNS:localhost"], check=True, capture_output=True)
        subprocess.run(["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", cls.room / "own.key", "-out",
                        cls.room / "locked.key"], check=True, capture_output=True)
        (cls.room / "text").write_text("no PEM\n")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def server(self, *arguments, **environment):
        server = Server(*arguments, **environment)
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        self.assertEqual(server.ready["event"], "ready", server.ready)
        return server

    def tls_server(self, *arguments):
        return self.server("--ssl-cert-file", self.room / "own.crt", "--ssl-key-file", self.room / "own.key", *arguments)

    def trust(self):
        return ssl.create_default_context(cafile=str(self.room / "own.crt"))

    def refused(self, *arguments, code):
        run = subprocess.run([SERVE, "--json", "--port", "0", *map(str, arguments)], env=ENVIRONMENT, text=True,
                             capture_output=True, timeout=60)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        dry = subprocess.run([SERVE, "--json", "--port", "0", "--dry-run", *map(str, arguments)], env=ENVIRONMENT,
                             text=True, capture_output=True, timeout=60)
        self.assertEqual(dry.returncode, code, "dry run: " + dry.stdout + dry.stderr)
        error = json.loads(run.stdout.splitlines()[-1])
        document = json.loads(dry.stdout)  # a flag that is refused has an event, no document
        self.assertEqual(document.get("error", document)["message"], error["message"])
        return error["message"]

    # TLS

    def test_tls_serves_answers_streams_and_further_requests_on_one_connection(self):
        server = self.tls_server("-c", 4096)
        self.assertTrue(server.ready["url"].startswith("https://127.0.0.1:"))
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=self.trust(), timeout=60)
        answers = []
        for turn in range(3):
            answer = post(connection, "/completion", {"prompt": "The capital of Japan is", "n_predict": 6, "temperature": 0})
            self.assertEqual(answer.status, 200)
            answers.append(json.loads(answer.read())["content"])
            if turn == 0:
                first = connection.sock
                self.assertIn(first.version(), ("TLSv1.2", "TLSv1.3"))
        self.assertIs(connection.sock, first)
        self.assertEqual(len(set(answers)), 1)
        answer = post(connection, "/completion", {"prompt": "The capital of Japan is", "n_predict": 6, "temperature": 0,
                                                  "stream": True})
        events = [json.loads(part[6:]) for part in answer.read().decode().split("\n\n") if part.startswith("data: ")]
        self.assertEqual("".join(e["content"] for e in events), answers[0])
        # A body of many TLS records, and an answer of many.
        text = "word " * 40_000
        answer = post(connection, "/tokenize", {"content": text, "with_pieces": True})
        self.assertEqual("".join(t["piece"] for t in json.loads(answer.read())["tokens"]), text)
        self.assertIs(connection.sock, first)
        # Pipelined: the second request came in the record of the first.
        connection.close()
        with self.trust().wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=30),
                                      server_hostname="127.0.0.1") as stream:
            stream.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 5 +
                           b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            received = b""
            while chunk := stream.recv(65536):  # ends by close_notify, or ssl would say so
                received += chunk
            self.assertEqual(received.count(b'{"status":"ok"}'), 6)
        self.assertEqual(server.stop(), 0)

    def test_tls_speaks_http_1_1_from_1_2_up_and_nothing_older(self):
        server = self.tls_server()

        def connect(context):
            with context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=30),
                                     server_hostname="127.0.0.1") as stream:
                return stream.version(), stream.selected_alpn_protocol(), stream.cipher()[0]

        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = self.trust()
            context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2", "http/1.1"])
            spoken, protocol, cipher = connect(context)
            self.assertEqual((spoken, protocol), (version.name.replace("_", "."), "http/1.1"))
            self.assertRegex(cipher, "ECDHE|TLS_")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            connect(old)
        static = self.trust()
        static.maximum_version = ssl.TLSVersion.TLSv1_2
        static.set_ciphers("AES256-GCM-SHA384")  # no forward secrecy
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            connect(static)
        # Plain HTTP is told so.
        plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        plain.request("GET", "/health")
        answer = plain.getresponse()
        self.assertEqual(answer.status, 400)
        self.assertIn("https://", json.loads(answer.read())["error"]["message"])
        self.assertEqual(server.stop(), 0)

    def test_a_handshake_that_does_not_come_ends_by_the_heads_deadline_and_holds_up_nobody(self):
        server = self.tls_server()
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(20)]
        idle[0].sendall(b"\x16\x03\x01")  # a record that does not go on
        begun = time.monotonic()
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=self.trust(), timeout=30)
        connection.request("GET", "/health")
        self.assertEqual(connection.getresponse().status, 200)
        self.assertLess(time.monotonic() - begun, 5)
        for one in idle:
            self.assertEqual(one.recv(1), b"")  # closed
            one.close()
        self.assertTrue(8 < time.monotonic() - begun < 25, time.monotonic() - begun)
        connection.close()
        self.assertEqual(server.stop(), 0)

    def test_certificates_and_keys_that_are_no_pair_end_the_start(self):
        own, key = self.room / "own.crt", self.room / "own.key"

        def with_files(certificate, key_file, code):
            return self.refused("--ssl-cert-file", certificate, "--ssl-key-file", key_file, code=code)

        self.assertIn("not that of the certificate", with_files(own, self.room / "other.key", 64))
        self.assertIn("--ssl-cert-file", with_files(self.room / "text", key, 64))
        self.assertIn("--ssl-key-file", with_files(own, self.room / "text", 64))
        self.assertIn("passphrase", with_files(own, self.room / "locked.key", 64))
        with_files(self.room / "missing.crt", key, 66)
        both = subprocess.run([SERVE, "--ssl-cert-file", own], env=ENVIRONMENT, text=True, capture_output=True, timeout=60)
        self.assertEqual(both.returncode, 64)
        self.assertIn("needs both", both.stderr)

    # The log

    def test_every_request_has_one_line_of_json_with_its_facts(self):
        server = self.server("--log-jsonl", "-np", 2, "-c", 2048)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = {"messages": [{"role": "user", "content": "Hello, and a long good morning to you."}], "max_tokens": 5,
                "temperature": 0}
        usage = []
        for name in ("one", "two"):
            answer = post(connection, "/v1/chat/completions", body, {"X-Request-Id": name})
            self.assertEqual(answer.headers["X-Request-Id"], name)
            usage.append(json.loads(answer.read()))
        answer = post(connection, "/v1/messages", body | {"max_tokens": 2}, {"X-Request-Id": "bad\tid"})
        made = answer.headers["X-Request-Id"]
        self.assertEqual((answer.status, answer.headers["request-id"]), (200, made))
        self.assertRegex(made, "^[0-9a-f]{32}$")
        answer.read()
        connection.request("GET", "/nope", headers={"X-Request-Id": "lost"})
        self.assertEqual(connection.getresponse().read().count(b"File Not Found"), 1)
        post(connection, "/completion", {"prompt": 5, "n_cache_reuse": 256}, {"X-Request-Id": "wrong"}).read()
        post(connection, "/completion", {"prompt": "a", "n_predict": 1, "n_cache_reuse": 256}).read()
        connection.request("GET", "/health")
        connection.getresponse().read()
        # One whose client goes.
        gone = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        text = json.dumps({"prompt": "a", "n_predict": -1, "ignore_eos": True, "stream": True})
        gone.sendall(f"POST /completion HTTP/1.0\r\nX-Request-Id: gone\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        self.assertTrue(gone.recv(100).startswith(b"HTTP/1.1 200"))
        gone.close()
        connection.close()
        time.sleep(1)
        self.assertEqual(server.stop(), 0)
        lines = [json.loads(line) for line in server.log.splitlines()]
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertIn(line["level"], ("info", "warning", "error"))
            self.assertTrue("message" in line or "event" in line)
        requests = {line["id"]: line for line in lines if line.get("event") == "request"}
        self.assertNotIn("/health", [line["path"] for line in requests.values()])
        for name, answer in zip(("one", "two"), usage):
            line = requests[name]
            self.assertEqual((line["method"], line["route"], line["status"], line["complete"], line["stream"]),
                             ("POST", "/v1/chat/completions", 200, True, False))
            details = answer["usage"]
            self.assertEqual(line["answer"], answer["id"])
            self.assertEqual(line["prompt_n"] + line["cache_n"], details["prompt_tokens"])
            self.assertEqual(line["cache_n"], details["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(line["predicted_n"], details["completion_tokens"])
            self.assertIn(line["slot"], (0, 1))
            self.assertGreaterEqual(line["ms"], line["first_byte_ms"])
            self.assertGreaterEqual(line["ms"], line["prompt_ms"])
            self.assertGreater(line["bytes"], 100)
        self.assertEqual(requests["one"]["cache_n"], 0)
        self.assertEqual(requests["two"]["prompt_n"], 1)
        self.assertEqual(requests[made]["route"], "/v1/messages")
        self.assertEqual((requests["lost"]["status"], requests["lost"]["route"]), (404, ""))
        self.assertEqual(requests["wrong"]["status"], 400)
        self.assertIn("prompt", requests["wrong"]["error"])
        self.assertEqual((requests["gone"]["complete"], requests["gone"]["end"]), (False, "gone"))
        # What the engine says about a request has the same id, and a wish without effect is named.
        self.assertTrue([line for line in lines if line.get("id") == "two" and "taken over" in line.get("message", "")])
        self.assertTrue([line for line in lines if "ignored: n_cache_reuse" in line.get("message", "")])
        ids = [line["id"] for line in lines if line.get("event") == "request"]
        self.assertEqual(len(ids), len(set(ids)))

    def test_a_refused_start_is_a_line_of_json_too(self):
        run = subprocess.run([SERVE, "--log-jsonl", "-m", "/no/such.gguf"], env=ENVIRONMENT, text=True,
                             capture_output=True, timeout=60)
        self.assertEqual(run.returncode, 66)
        last = json.loads(run.stderr.splitlines()[-1])
        self.assertEqual(last["level"], "error")
        self.assertIn("/no/such.gguf", last["message"])

    def test_no_key_is_in_any_log_line_or_answer(self):
        (self.room / "keys").write_text(f"# ours\n{KEY}-file\n")
        for form in ([], ["--log-jsonl"]):
            server = self.server(*form, "-v", "--api-key-file", self.room / "keys", "--api-key", KEY + "-flag", "--props",
                                 LLAMA_API_KEY=KEY + "-env")
            seen = ""
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            for headers, status in (({"Authorization": f"Bearer {KEY}-flag"}, 200), ({"X-Api-Key": f"{KEY}-file"}, 200),
                                    ({"Authorization": f"Bearer {KEY}-wrong"}, 401), ({"X-Api-Key": f"{KEY}-env"}, 401),
                                    ({"Authorization": f"{KEY}-flag", "X-Request-Id": "plain"}, 200)):
                for path in ("/props", "/v1/models", "/metrics", "/nope"):
                    connection.request("GET", path, headers=headers)
                    answer = connection.getresponse()
                    seen += answer.read().decode() + str(answer.headers)
                    self.assertEqual(answer.status, status if path != "/nope" or status == 401 else 404)
                answer = post(connection, "/completion", {"prompt": "a", "n_predict": 1}, headers)
                seen += answer.read().decode()
            connection.close()
            self.assertEqual(server.stop(), 0)
            self.assertNotIn(KEY, server.log + seen + "".join(server.out))

    # A service manager

    def listener(self):
        path = self.room / f"notify-{time.monotonic_ns()}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(str(path))
        self.addCleanup(listener.close)
        messages = []

        def read():
            try:
                while data := listener.recv(4096):
                    messages.append((time.monotonic(), data.decode()))
            except OSError:
                return

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return str(path), messages

    def test_a_manager_hears_of_the_load_of_ready_and_of_the_stop(self):
        path, messages = self.listener()
        server = self.server(NOTIFY_SOCKET=path)
        self.assertEqual(server.stop(), 0)
        texts = [text for _, text in messages]
        ready = next(i for i, text in enumerate(texts) if "READY=1" in text)
        loading = [text for text in texts[:ready] if re.search(r"STATUS=loading: .+ of .+", text)]
        self.assertTrue(loading, texts)
        self.assertTrue(all("EXTEND_TIMEOUT_USEC=" in text for text in loading))
        self.assertRegex(texts[ready], r"STATUS=serving seedling.* at http://127\.0\.0\.1:\d+")
        self.assertIn("STOPPING=1", texts[-1])
        self.assertFalse([text for text in texts if "WATCHDOG" in text])

    def test_the_watchdog_is_fed_while_the_engine_goes_round_and_not_while_one_pass_lasts(self):
        path, messages = self.listener()
        server = self.server("-b", 4096, "-ub", 4096, "-t", 1, NOTIFY_SOCKET=path, WATCHDOG_USEC="60000")

        def gaps(since):
            times = [at for at, text in messages if "WATCHDOG=1" in text and at >= since]
            return [b - a for a, b in zip(times, times[1:])]

        begun = time.monotonic()
        time.sleep(1.5)
        idle = sorted(gaps(begun))
        self.assertGreater(len(idle), 10)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        asked = time.monotonic()
        prompt = [1000 + i % 97 for i in range(3500)]
        answer = json.loads(post(connection, "/completion", {"prompt": prompt, "n_predict": 1}).read())
        took = answer["timings"]["prompt_ms"] / 1000
        time.sleep(1)
        self.assertGreater(took, 0.5, "a pass too short to tell anything")
        # The pass is one gap; behind it the pings are there again.
        self.assertGreater(max(gaps(asked)), 0.6 * took)
        self.assertGreater(len(gaps(asked + took)), 5)
        self.assertGreater(max(gaps(asked)), 3 * idle[len(idle) // 2])
        connection.close()
        self.assertEqual(server.stop(), 0)

    def test_the_watchdog_is_fed_while_answers_come_to_their_end(self):
        path, messages = self.listener()
        server = self.server("-c", 65536, "--drain-seconds", 3, NOTIFY_SOCKET=path, WATCHDOG_USEC="300000")
        connection, answer = self.start_stream(server, -1)
        server.process.send_signal(signal.SIGTERM)
        answer.read()
        self.assertEqual(server.wait(), 0)
        connection.close()
        stopping = next(at for at, text in messages if "STOPPING=1" in text)
        fed = [at - stopping for at, text in messages if "WATCHDOG=1" in text and at > stopping]
        self.assertGreater(len(fed), 8)
        self.assertGreater(max(fed), 2)

    def test_the_unit_is_installed_and_asks_for_what_the_server_does(self):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read(BIN.parent / "service/bloomery-serve.service")
        service = unit["Service"]
        self.assertEqual(service["Type"], "notify")
        self.assertTrue(service["ExecStart"].startswith("/") and service["ExecStart"].endswith("/bin/bloomery-serve"))
        self.assertTrue(service["LoadCredential"].startswith("api-keys:"))
        self.assertIn("WatchdogSec", service)
        self.assertEqual((service["DynamicUser"], service["NoNewPrivileges"], service["ProtectSystem"]), ("yes", "yes", "strict"))
        # What will not heal is not tried again.
        self.assertEqual(service["RestartPreventExitStatus"].split(), ["2", "64", "65", "66", "69", "78"])

    # Stops

    def start_stream(self, server, n_predict):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        answer = post(connection, "/v1/completions", {"prompt": "Once", "max_tokens": n_predict, "stream": True,
                                                      "ignore_eos": True})
        self.assertTrue(answer.readline().startswith(b"data: "))
        return connection, answer

    def test_a_stop_lets_answers_end_until_its_deadline_and_then_ends_them(self):
        server = self.server("-c", 8192, "--drain-seconds", 60)
        connection, answer = self.start_stream(server, 200)
        server.process.send_signal(signal.SIGTERM)
        text = answer.read().decode()
        self.assertTrue(text.endswith("data: [DONE]\n\n"), text[-300:])
        self.assertEqual(server.wait(), 0)
        connection.close()
        server = self.server("-c", 65536, "--drain-seconds", 1)
        connection, answer = self.start_stream(server, -1)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        late = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        self.assertEqual(post(late, "/completion", {"prompt": "a"}).status, 503)
        late.close()
        text = answer.read().decode()
        self.assertIn("the server is stopping", text)
        self.assertNotIn("[DONE]", text)
        self.assertEqual(server.wait(), 0)
        self.assertTrue(0.8 < time.monotonic() - begun < 8, time.monotonic() - begun)
        connection.close()
        # A second signal does not wait.
        server = self.server("-c", 65536, "--drain-seconds", 600)
        connection, answer = self.start_stream(server, -1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        self.assertEqual(server.stop(), 1)
        connection.close()

    # Addresses

    def test_a_unix_socket_serves_is_plain_beside_tls_and_taken_only_from_the_dead(self):
        for host in (f"unix:{self.room}/a", f"{self.room}/b.sock"):
            path = host.removeprefix("unix:")
            server = self.server("--host", host, "--ssl-cert-file", self.room / "own.crt", "--ssl-key-file",
                                 self.room / "own.key")
            self.assertEqual(server.ready["urls"], ["unix:" + path])
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 200"))
            self.assertIn("another program listens", self.refused("--host", host, code=71))
            self.assertEqual(server.stop(), 0)
            self.assertFalse(os.path.exists(path))
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(path)
            server = self.server("--host", host)
            self.assertEqual(server.stop(), 0)
        with socket.create_server(("127.0.0.1", 0)) as busy:
            self.assertIn("another program listens", self.refused("--port", busy.getsockname()[1], code=71))

    # A dry run ends as the start would

    def test_a_dry_run_refuses_what_a_start_refuses(self):
        self.assertIn("--slot-save-path", self.refused("--slot-save-path", self.room / "none", code=64))
        self.assertIn("--grammar", self.refused("--grammar", "root ::= nothing", code=64))
        self.refused("--grammar-file", self.room / "none", code=66)

    # The page

    def test_the_page_gets_the_settings_it_begins_with(self):
        (self.room / "ui.json").write_text('{"theme": "dark"}')
        for arguments in (("--ui-config", '{"theme": "dark"}'), ("--ui-config-file", self.room / "ui.json")):
            server = self.server(*arguments)
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("GET", "/props")
            self.assertEqual(json.loads(connection.getresponse().read())["ui_settings"], {"theme": "dark"})
            connection.close()
            self.assertEqual(server.stop(), 0)
        self.refused("--ui-config", "[]", code=64)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
