#!/usr/bin/env python3
"""usage: guide.py <source tree> [<build tree> <C++ compiler>]

What docs/plugin-guide.md shows is what a plugin's author gets. Each block of C++, CMake or JSON in it must
stand in sdk/template as it is there, but for indentation (and the template is compiled by the tests, with
every warning an error). With a build tree, the shell blocks are also run, in order, by an author with an
empty home: they install the SDK, build the copied template against it, and check and serve the result.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

CODE = {"cpp", "c", "cmake", "json"}


def blocks(text):
    """(line number, language, lines) of each fenced block."""
    found, language, start, lines = [], None, 0, []
    for number, line in enumerate(text.split("\n"), 1):
        if language is None:
            if match := re.match(r"```(\w+)$", line):
                language, start, lines = match.group(1), number, []
        elif line == "```":
            found.append((start, language, lines))
            language = None
        else:
            lines.append(line)
    assert language is None, f"the block of line {start} has no end"
    return found


def dedent(lines):
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    cut = min(indents, default=0)
    return [line[cut:] for line in lines]


def stands_in(block, file_lines):
    block = dedent(block)
    return any(dedent(file_lines[i:i + len(block)]) == block
               for i in range(len(file_lines) - len(block) + 1))


def check_code(source, found):
    template = {path.name: path.read_text().split("\n")
                for path in sorted((source / "sdk/template").iterdir())}
    strangers = 0
    for number, language, lines in found:
        if language in CODE and not any(stands_in(lines, text) for text in template.values()):
            print(f"docs/plugin-guide.md:{number}: this {language} block is not in sdk/template")
            strangers += 1
    return strangers


def run_shell(source, build, compiler, found):
    script = "\n".join("\n".join(lines) for _, language, lines in found if language == "sh")
    # The guide's author builds in build/release; here the tests' own tree was built.
    script = re.sub(r"(\$PWD/)?\bbuild/release\b", str(build), script)
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ["PATH"], "CXX": compiler, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(["bash", "-euxo", "pipefail", "-c", script], cwd=source, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500)
    print(done.stdout)
    if done.returncode != 0:
        print("the guide's commands failed")
    elif not re.search(r": \d\d passed, 0 failed, 9 skipped", done.stdout):
        print("check-plugin did not pass every test but the nine that the guide speaks of")
        return 1
    return done.returncode


def main():
    source = pathlib.Path(sys.argv[1])
    found = blocks((source / "docs/plugin-guide.md").read_text())
    languages = [language for _, language, _ in found]
    assert languages.count("cpp") >= 8 and "sh" in languages, "the guide has lost its blocks"
    unknown = set(languages) - CODE - {"sh"}
    assert not unknown, f"nothing checks blocks of {unknown}"
    failed = check_code(source, found)
    if len(sys.argv) > 2:
        failed += run_shell(source, pathlib.Path(sys.argv[2]), sys.argv[3], found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
