#!/usr/bin/env python3
"""usage: example.py <source tree> <build tree> <C++ compiler>

sdk/examples/olmoe as its reader builds it: the SDK is installed into a scratch folder, a copy of the example
built against it alone, a tiny model made, checked, and run by a host that knows nothing of the architecture.
The logits are held to tests/data/olmoe/golden.json, and that to the example's oracle, which runs again.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Of the largest logit of a row: float32 sums against float64 ones, over two layers. Measured: 9e-8; a rope base of
# 9,999 in place of 10,000 gives 7e-7.
TOLERANCE = 5e-7


def run(command, **more):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def fixture_arguments(readme):
    """What the README gives `bloomery fixture`, without the name of its output."""
    text = re.search(r"bloomery fixture (.*?) olmoe\.gguf", readme, re.S).group(1)
    return text.replace("\\\n", " ").split()


def observed(golden):
    return [word for layer in range(len(golden[0]["picks"])) for word in ("--observe", f"layer.{layer}.router.ids")]


def main():
    source, build, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    example = source / "sdk/examples/olmoe"
    golden = json.loads((source / "tests/data/olmoe/golden.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        run(["cmake", "--install", build, "--component", "sdk", "--prefix", work / "sdk"])
        shutil.copytree(work / "sdk/share/bloomery-sdk/examples/olmoe", work / "olmoe")
        run(["cmake", "-G", "Ninja", "-S", work / "olmoe", "-B", work / "olmoe/build",
             "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={work}/sdk", f"-DCMAKE_CXX_COMPILER={compiler}"])
        run(["cmake", "--build", work / "olmoe/build"])
        model = work / "olmoe/olmoe.gguf"
        run([build / "bin/bloomery", "fixture", *fixture_arguments((example / "README.md").read_text()), model],
            cwd=work / "olmoe")
        print(run([build / "bin/bloomery", "check-plugin", work / "olmoe/build/plugins/olmoe/libolmoe.so",
                   "--model", model]))
        oracle = json.loads(run([sys.executable, example / "oracle.py", model]))
        logits_run = json.loads(run([build / "bin/bloomery", "check-plugin",
                                     work / "olmoe/build/plugins/olmoe/libolmoe.so", "--model", model, "--tokens",
                                     ",".join(str(row["token"]) for row in golden), *observed(golden)]))["rows"]
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
            assert host[f"layer.{layer}.router.ids"] == picks, f"row {i}, layer {layer}: other experts"
        worst = max(worst, apart)
    print(f"{len(golden)} rows of {len(mine)} logits: at most {worst:.2g} of the largest apart")


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    main()
