#!/usr/bin/env python3
"""Rules about the tree that no compiler checks.

  check_tree.py RULE ROOT     RULE: arrows, architectures, private, size, pages, or selftest

Each prints one line a violation and exits 1, or says what it looked at and exits 0. `selftest` makes a
small tree for each rule that breaks it and expects the rule to say so.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# Who may include whom under runtime/ (docs/design.md, "The tree"); `base` and the SDK are open to all.
ARROWS = {
    "base": set(),
    "hub": {"base"},
    "model": {"base"},
    "text": {"base", "model"},
    "graph": {"base", "model"},
    "ops": {"graph", "kernels-common"},
    "memory": {"graph", "model"},
    "plugin": {"ops", "graph", "model"},
    "residency": {"memory", "plugin", "ops", "graph", "model"},
    "pager": {"base", "model"},
    "state": {"memory", "plugin", "ops", "graph", "model"},
    "exec": {"memory", "plugin", "ops", "pager", "graph", "model", "kernels-common"},
    "engine": {"state", "residency", "exec", "text", "model"},
    "serve": {"engine", "exec", "text", "model"},
    "apps": {"hub", "serve", "engine", "state", "residency", "exec", "memory", "plugin", "ops", "pager", "graph",
             "text", "model"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
SOURCES = {".h", ".hpp", ".cc", ".c", ".cu", ".cuh"}

# What a seat's architectures and models are called. The host never speaks of one: a plugin does.
ARCHITECTURES = re.compile(
    r"qwen3(?!_vl)|qwen35|qwen38|qwen4exp|glm5next|glm4moe|deepseek4|deepseek41|mimo|\bclef\b|olmoe", re.I)

# A file's split of text ("tokenizer.ggml.pre") may be called as an architecture is: the table of splits.
SPLITS = ("runtime/text/pre_tokenizer.cc", re.compile(r'^\s*\{\.name = "\w+",$'))

TEXT_SUFFIXES = SOURCES | {".md", ".txt", ".cmake", ".json", ".py", ".sh", ".mjs", ".js", ".jinja", ".in", ""}
# Absolute folders of somebody's machine, and hosts that serve packages. Written so that this file
# passes its own rule.
PRIVATE = re.compile(
    r"/(?:work|root|home/[a-z]+)/|\b(?:registry|mirrors?|deb|artifactory|nexus)\.[a-z0-9-]+\.[a-z]+", re.I)
TRACKED_BYTES_MAX = 52 << 20


def tracked(root):
    out = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True).stdout
    return [root / p for p in out.decode().split("\0") if p]


def sources(root, top):
    base = root / top
    return sorted(p for p in base.rglob("*") if p.suffix in SOURCES) if base.is_dir() else []


def arrows(root):
    bad, seen = [], 0
    for top in ("runtime", "kernels-common", "plugins"):
        for path in sources(root, top):
            rel = path.relative_to(root)
            module = rel.parts[1] if top == "runtime" else top
            seen += 1
            for target in INCLUDE.findall(path.read_text(errors="replace")):
                parts = pathlib.PurePosixPath(target).parts
                if len(parts) < 2 or parts[0] not in ("runtime", "kernels-common", "plugins", "tests"):
                    continue  # a system header, or the SDK
                to = parts[1] if parts[0] == "runtime" else parts[0]
                if top == "runtime" and module not in ARROWS:
                    bad.append(f"{rel}: folder runtime/{module} has no arrows; add it to the table")
                elif top == "runtime" and to in (module, "base"):
                    continue
                elif top == "runtime" and to in ARROWS[module]:
                    continue
                elif top == "kernels-common" and to == "kernels-common":
                    continue
                elif top == "plugins" and to in ("kernels-common", "plugins"):
                    continue
                else:
                    bad.append(f"{rel}: {module} must not include {target}")
    return sorted(set(bad)), f"{seen} sources"


def architectures(root):
    bad, seen = [], 0
    for path in sorted((root / "runtime").rglob("*")):
        if path.suffix not in SOURCES and path.name != "CMakeLists.txt":
            continue
        seen += 1
        for n, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            is_split = str(path.relative_to(root)) == SPLITS[0] and SPLITS[1].match(line)
            if ARCHITECTURES.search(line) and not is_split:
                bad.append(f"{path.relative_to(root)}:{n}: names an architecture: {line.strip()[:80]}")
    return bad, f"{seen} files under runtime/"


def private(root):
    bad, seen = [], 0
    for path in tracked(root):
        if path.suffix not in TEXT_SUFFIXES or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" in data[:4096]:
            continue
        seen += 1
        for n, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            m = PRIVATE.search(line)
            if m:
                bad.append(f"{path.relative_to(root)}:{n}: holds '{m.group(0)}'")
    return bad, f"{seen} text files"


def size(root):
    total = sum(p.stat().st_size for p in tracked(root) if p.is_file())
    bad = [] if total < TRACKED_BYTES_MAX else [f"tracked files hold {total} bytes, limit {TRACKED_BYTES_MAX}"]
    return bad, f"{total / 2**20:.1f} MiB tracked"


TEST = re.compile(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)")
NAMED_TEST = re.compile(r"([A-Z]\w+)\.(\*|[A-Z]\w*)(…?)")
NAMED_PATH = re.compile(r"(?:tests|runtime|sdk|plugins|kernels-common|docs)/[\w./*-]*")
METHOD = re.compile(r"def (test_\w+)")
NAMED_METHOD = re.compile(r"(test_\w+)…")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def pages(root):
    """What a page names is there: tests (`Suite.Name`, `Suite.*`, `Suite.Begin…`, `test_begin…`), paths, links."""
    bad, seen = [], 0
    methods = [name for path in sorted((root / "tests").rglob("*.py")) for name in METHOD.findall(path.read_text())]
    tests = [pair for path in sources(root, "tests") for pair in TEST.findall(path.read_text(errors="replace"))]
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        fenced = False
        for n, line in enumerate(page.read_text().splitlines() if page.is_file() else [], 1):
            fenced ^= line.startswith("```")
            if fenced:
                continue
            where = f"{page.relative_to(root)}:{n}"
            for word in re.findall(r"`([^`]+)`", line):
                if m := NAMED_TEST.fullmatch(word):
                    suite, name, cut = m.groups()
                    seen += 1
                    if not any(s == suite and (name in ("*", t) or cut and t.startswith(name)) for s, t in tests):
                        bad.append(f"{where}: there is no test {word}")
                if m := NAMED_METHOD.fullmatch(word):
                    seen += 1
                    if not any(name.startswith(m[1]) for name in methods):
                        bad.append(f"{where}: there is no test {word}")
                if NAMED_PATH.fullmatch(word):
                    seen += 1
                    if not any(root.glob(word.rstrip("/"))) and not any(root.glob(word + "*")):
                        bad.append(f"{where}: there is no {word}")
            for target in LINK.findall(line):
                seen += 1
                if not (page.parent / target).exists():
                    bad.append(f"{where}: the link {target} leads nowhere")
    return bad, f"{seen} names and links"


RULES = {"arrows": arrows, "architectures": architectures, "private": private, "size": size, "pages": pages}


def selftest():
    cases = {
        "arrows": {"runtime/model/a.h": '#include "runtime/serve/b.h"\n'},
        "architectures": {"runtime/text/a.cc": '// for qwen3moe\n'},
        "private": {"docs/a.md": "see /work" + "/main\n", "package-lock.json": "https://registry" + ".example.org/a\n"},
        "size": {"big.bin": "x" * (TRACKED_BYTES_MAX + 1)},
        "pages": {"docs/a.md": "`test_fails…`\n", "tests/a.py": "def test_works(self):\n"},
    }
    good = {
        "arrows": {"runtime/serve/a.h": '#include "runtime/engine/b.h"\n#include <vector>\n'},
        "architectures": {"runtime/text/a.cc": '// the qwen2 split\n'},
        "private": {"docs/a.md": "nothing to see\n"},
        "size": {"small.bin": "x"},
        "pages": {"docs/a.md": "`Toy.Wor…` `test_wor…` `tests/a.cc` [a](a.md)\n```\n`docs/b.md`\n```\n",
                  "tests/a.cc": "TEST_F(Toy, Works) {}\n", "tests/a.py": "def test_works(self):\n"},
    }
    trees = [("pages", {"docs/a.md": "`Toy.Fails…`\n", "tests/a.cc": "TEST(Toy, Works) {}\n"}, True)]
    for rule in RULES:
        trees += [(rule, cases[rule], True), (rule, good[rule], False)]
    for rule, files, want in trees:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            subprocess.run(["git", "init", "-q", folder], check=True)
            subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
            found = bool(RULES[rule](root)[0])
            if found != want:
                return [f"selftest: rule {rule} {'missed' if want else 'invented'} a violation"]
    return []


def main():
    rule, root = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    bad, looked = (selftest(), "every rule seen to fail") if rule == "selftest" else RULES[rule](root)
    for line in bad:
        print(line)
    print(f"{rule}: {len(bad)} violations ({looked})")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
