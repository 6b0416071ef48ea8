#!/usr/bin/env python3
"""usage: example.py <source tree> <build tree> <C++ compiler> <example>

A plugin of sdk/examples as its reader builds it: the SDK is installed into a scratch folder, a copy of the example
built against it alone, a tiny model made, checked, and run by a host that knows nothing of the architecture.
The logits are held to tests/data/<example>/golden.json, and that to the example's oracle, which runs again; so
are a draft head's guesses, where the golden has some.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Of the largest logit of a row: float32 sums against float64 ones, over two or three layers. Measured: 9e-8 (olmoe)
# and 2.2e-7 (glm4moe); a rope base of 9,999 in place of 10,000 gives 7e-7.
TOLERANCE = 5e-7
# Of a guess's probability. Measured: 6.2e-7; picks' weights 1e-5 too large give 1.4e-5, a second guess from another
# hidden state 0.15.
GUESS_TOLERANCE = 5e-6


def run(command, **more):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def fixture_arguments(name, readme):
    """What the README gives `bloomery fixture`, without the name of its output."""
    text = re.search(rf"bloomery fixture (.*?) {name}\.gguf", readme, re.S).group(1)
    return text.replace("\\\n", " ").split()


def wanted(golden):
    """What the host shall print beside logits."""
    words = []
    for layer, picks in enumerate(golden[0]["picks"]):
        if picks is not None:
            words += ["--observe", f"layer.{layer}.router.ids"]
    if "draft" in golden[0]:
        words += ["--draft", str(len(golden[0]["draft"]))]
    return words


def compare_guesses(i, golden, host):
    for depth, (guess, mine) in enumerate(zip(golden, host, strict=True)):
        assert mine["token"] == guess["token"], f"row {i}, guess {depth}: another token"
        apart = abs(mine["probability"] / guess["probability"] - 1)
        assert apart < GUESS_TOLERANCE, f"row {i}, guess {depth}: its probability is off by {apart}"


def main():
    source, build, compiler, name = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    example = source / "sdk/examples" / name
    golden = json.loads((source / "tests/data" / name / "golden.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        run(["cmake", "--install", build, "--component", "sdk", "--prefix", work / "sdk"])
        shutil.copytree(work / "sdk/share/bloomery-sdk/examples" / name, work / name)
        run(["cmake", "-G", "Ninja", "-S", work / name, "-B", work / name / "build",
             "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={work}/sdk", f"-DCMAKE_CXX_COMPILER={compiler}"])
        run(["cmake", "--build", work / name / "build"])
        model = work / name / f"{name}.gguf"
        plugin = work / name / "build/plugins" / name / f"lib{name}.so"
        run([build / "bin/bloomery", "fixture", *fixture_arguments(name, (example / "README.md").read_text()), model],
            cwd=work / name)
        print(run([build / "bin/bloomery", "check-plugin", plugin, "--model", model]))
        oracle = json.loads(run([sys.executable, example / "oracle.py", model]))
        logits_run = json.loads(run([build / "bin/bloomery", "check-plugin", plugin, "--model", model, "--tokens",
                                     ",".join(str(row["token"]) for row in golden), *wanted(golden)]))["rows"]
    assert [row["best"] for row in oracle] == [row["best"] for row in golden], "the oracle has other best tokens"
    assert [row["picks"] for row in oracle] == [row["picks"] for row in golden], "the oracle picks other experts"
    worst = 0.0
    for i, (row, host) in enumerate(zip(golden, logits_run)):
        mine = host["logits"]
        largest = max(map(abs, mine))
        again = max(abs(a - b) for a, b in zip(row["logits"], oracle[i]["logits"])) / largest
        apart = max(abs(a - b) for a, b in zip(row["logits"], mine[::16])) / largest
        assert len(mine[::16]) == len(row["logits"]), "another vocabulary"
        assert again < 1e-8, f"row {i}: the oracle no longer gives its golden values: {again}"
        assert apart < TOLERANCE, f"row {i}: a logit is off by {apart} of the largest"
        assert max(range(len(mine)), key=lambda t: mine[t]) == row["best"], f"row {i}: another best token"
        for layer, picks in enumerate(row["picks"]):
            if picks is not None:
                assert host[f"layer.{layer}.router.ids"] == picks, f"row {i}, layer {layer}: other experts"
        compare_guesses(i, row.get("draft", []), host.get("draft", []))
        compare_guesses(i, row.get("draft", []), oracle[i].get("draft", []))
        worst = max(worst, apart)
    print(f"{len(golden)} rows of {len(mine)} logits: at most {worst:.2g} of the largest apart")


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    main()
