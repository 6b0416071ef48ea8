#!/usr/bin/env python3
"""A server on the card: answers the README's first request, and gives eight concurrent streams the texts that each
gets alone. DEVICE is what -dev takes: CUDA0, or CUDA0,CUDA1. Usage: serve_check.py BLOOMERY_SERVE [DEVICE]"""
import concurrent.futures
import json
import re
import subprocess
import sys
import time
import urllib.request

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "CUDA0"
QUESTIONS = ["What is the capital of Japan?", "What is 17 + 25?", "Tell a story about Sam and a glacier.",
             "Which day comes after Friday?", "Write JSON for a person. Name Vera, age 36, likes river.",
             "Sort the numbers: 10, 99, 85", "Tell a story about Gina and a hammer.", "What is 3 + 4?"]


def ask(url, question):
    body = json.dumps({"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 64,
                       "stream": True, "cache_prompt": False}).encode()
    request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    text = ""
    with urllib.request.urlopen(request, timeout=30) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                delta = json.loads(line[6:])["choices"]
                text += (delta[0]["delta"].get("content") or "") if delta else ""
    return text


def main():
    server = subprocess.Popen([sys.argv[1], "--port", "0", "-dev", DEVICE, "--parallel", "8", "-c", "4096"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = None
        while url is None:
            line = server.stdout.readline()
            if not line:
                sys.exit("the server ended before it listened")
            print(line, end="")
            found = re.search(r"http://[0-9.:]+", line)
            url = found.group(0) if found else None
        props = json.load(urllib.request.urlopen(url + "/props", timeout=10))
        print("kernels:", props.get("bloomery", props).get("kernels"))
        devices = props["engine"]["devices"]
        print("devices:", devices)
        if len(devices) != len(DEVICE.split(",")):
            sys.exit(f"/props tells {len(devices)} cards, the server runs on {DEVICE}")
        if any(not device["name"] or device["vram_free"] > device["vram_total"] for device in devices):
            sys.exit("/props does not tell the cards that the server runs on")
        first = ask(url, QUESTIONS[0])
        print(first)
        if "Tokyo" not in first:
            sys.exit("the first request was not answered with Tokyo")
        alone = [ask(url, question) for question in QUESTIONS]
        for _ in range(3):
            with concurrent.futures.ThreadPoolExecutor(len(QUESTIONS)) as pool:
                together = list(pool.map(lambda question: ask(url, question), QUESTIONS))
            for question, one, other in zip(QUESTIONS, alone, together):
                if one != other:
                    sys.exit(f"'{question}': alone {one!r}, beside others {other!r}")
        print("eight streams: each as alone")
    finally:
        server.terminate()
        deadline = time.time() + 20
        while server.poll() is None and time.time() < deadline:
            time.sleep(0.1)
        if server.poll() is None:
            server.kill()


if __name__ == "__main__":
    main()
