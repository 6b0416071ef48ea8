"""A hub on this machine that does what a hub does, and everything a hub, a network or an attacker may do instead.

Two servers on loopback: the hub itself, and a second host that its redirects lead to. A Repo says what is
listed; its `fault` says how a file's request goes wrong. Every request is kept in `log`.
"""
import hashlib
import http.server
import json
import socket
import threading
import urllib.parse

PAGE = 2  # entries of one page of a listing


class Repo:
    """Files by path. `listed` changes entries of the listing; `fault(handler, path, start)` answers a request itself
    and returns True, or returns False for the ordinary answer."""

    def __init__(self, files, fault=None, listed=None, status=200, listing=None):
        self.files, self.fault, self.status, self.listing = files, fault, status, listing
        self.entries = []
        for path, data in files.items():
            entry = {"type": "file", "path": path, "oid": "0" * 40, "size": len(data),
                     "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}}
            entry.update((listed or {}).get(path, {}))
            self.entries.append(entry)
        self.entries.append({"type": "directory", "path": "folder", "oid": "0" * 40, "size": 0})


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # a client that was killed

    def __init__(self, hub, second):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.second = hub, second


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        hub = self.server.hub
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        with hub.lock:
            hub.log.append({"path": path, "second": self.server.second, "range": self.headers.get("Range"),
                            "token": self.headers.get("Authorization")})
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            return self.list(hub.repos.get("/".join(parts[2:4])))
        repo = hub.repos.get("/".join(parts[:2]))
        if repo is None:
            return self.send(404, b"Repository not found")
        self.file(repo, "/".join(parts[4:]))

    def list(self, repo):
        if repo is None:
            return self.send(404, b'{"error":"Repository not found"}')
        if repo.status != 200:
            return self.send(repo.status, b"no", {"Retry-After": "0"})
        if repo.listing is not None:
            return self.send(200, repo.listing)
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        at = int(query.get("cursor", ["0"])[0])
        headers = {}
        if at + PAGE < len(repo.entries):
            path = self.path.split("?")[0]
            headers["Link"] = f'<{self.server.hub.url}{path}?recursive=true&cursor={at + PAGE}>; rel="next"'
        self.send(200, json.dumps(repo.entries[at:at + PAGE]).encode(), headers)

    def file(self, repo, path):
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        if repo.fault and repo.fault(self, path, start):
            return
        if not self.server.second:  # as the real one: the bytes are elsewhere
            return self.send(302, b"", {"Location": f"{self.server.hub.second_url}{self.path}"})
        self.bytes(repo.files[path], start)

    def bytes(self, data, start, upto=None):
        """The file's bytes from `start`, its head as it should be, and only `upto` of them."""
        rest = data[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(rest[:upto])
        if upto is not None:
            self.cut()

    def cut(self):
        self.wfile.flush()
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def send(self, status, body, headers=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Hub:
    def __init__(self, tls=None):
        self.repos, self.log, self.lock = {}, [], threading.Lock()
        self.main, self.other = Server(self, False), Server(self, True)
        scheme = "http"
        if tls:
            self.main.socket = tls.wrap_socket(self.main.socket, server_side=True)
            self.other.socket = tls.wrap_socket(self.other.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self.main.server_port}"
        self.second_url = f"{scheme}://127.0.0.1:{self.other.server_port}"
        for server in (self.main, self.other):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        for server in (self.main, self.other):
            server.shutdown()
            server.server_close()

    def file_requests(self, second=True):
        with self.lock:
            return [r for r in self.log if "/resolve/" in r["path"] and r["second"] == second]
