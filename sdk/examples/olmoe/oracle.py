#!/usr/bin/env python3
"""usage: oracle.py MODEL.gguf [TOKEN …]

OLMoE in float64 and nothing but Python's own lists, straight from the mathematics: what the plugin beside it
is held to. Reads a small F32 model (`bloomery fixture`, README.md), runs the tokens (3 … 9) as one prompt,
and prints JSON: for each token every 16th logit, the best token, and the experts that each layer picked.
"""
import json
import math
import struct
import sys

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY, F32 = 8, 9, 0


class Gguf:
    """Metadata and F32 tensors of a GGUF file, version 3."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        magic, version, tensors, keys = self.take("<4sIQQ")
        assert magic == b"GGUF" and version == 3, "not a GGUF file of version 3"
        self.keys = {self.string(): self.value(self.take("<I")[0]) for _ in range(keys)}
        self.infos = {}
        for _ in range(tensors):
            name = self.string()
            ne = self.take("<%dQ" % self.take("<I")[0])
            kind, offset = self.take("<IQ")
            assert kind == F32, name + " is not F32"
            self.infos[name] = (ne, offset)
        align = self.keys.get("general.alignment", 32)
        self.start = (self.at + align - 1) // align * align

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def string(self):
        return self.take("<%ds" % self.take("<Q")[0])[0].decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, n = self.take("<IQ")
            return [self.value(kind) for _ in range(n)]
        return self.take(SCALARS[kind])[0]

    def rows(self, name):
        """The tensor as rows of ne[0] values."""
        ne, offset = self.infos[name]
        n = math.prod(ne)
        values = struct.unpack_from("<%df" % n, self.data, self.start + offset)
        return [values[i:i + ne[0]] for i in range(0, n, ne[0])]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def times(matrix, x):
    return [dot(row, x) for row in matrix]


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def rms_norm(x, weight, eps):
    scale = 1.0 / math.sqrt(dot(x, x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight)]


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    total = math.fsum(e)
    return [v / total for v in e]


def rotated(head, position, base):
    """Value i turns with value i + half."""
    half = len(head) // 2
    out = list(head)
    for i in range(half):
        angle = position * base ** (-2.0 * i / len(head))
        c, s = math.cos(angle), math.sin(angle)
        out[i] = head[i] * c - head[i + half] * s
        out[i + half] = head[i] * s + head[i + half] * c
    return out


def heads_of(x, n):
    size = len(x) // n
    return [x[i * size:(i + 1) * size] for i in range(n)]


class Model:
    def __init__(self, path):
        file = Gguf(path)
        key = lambda name: file.keys["olmoe." + name]
        self.heads, self.kv_heads = key("attention.head_count"), key("attention.head_count_kv")
        self.eps, self.base = key("attention.layer_norm_rms_epsilon"), key("rope.freq_base")
        self.used = key("expert_used_count")
        self.embedding = file.rows("token_embd.weight")
        self.out_norm, self.head = file.rows("output_norm.weight")[0], file.rows("output.weight")
        names = ("attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm attn_output ffn_norm ffn_gate_inp "
                 "ffn_gate_exps ffn_up_exps ffn_down_exps").split()
        self.layers = [{name: file.rows(f"blk.{l}.{name}.weight") for name in names}
                       for l in range(key("block_count"))]

    def attend(self, w, x, position, cache):
        y = rms_norm(x, w["attn_norm"][0], self.eps)
        q = rms_norm(times(w["attn_q"], y), w["attn_q_norm"][0], self.eps)
        k = rms_norm(times(w["attn_k"], y), w["attn_k_norm"][0], self.eps)
        cache.append(([rotated(h, position, self.base) for h in heads_of(k, self.kv_heads)],
                      heads_of(times(w["attn_v"], y), self.kv_heads)))
        mixed = []
        for h, query in enumerate(heads_of(q, self.heads)):
            query, kv = rotated(query, position, self.base), h * self.kv_heads // self.heads
            share = softmax([dot(query, keys[kv]) / math.sqrt(len(query)) for keys, _ in cache])
            mixed += [math.fsum(p * values[kv][i] for p, (_, values) in zip(share, cache))
                      for i in range(len(query))]
        return add(x, times(w["attn_output"], mixed))

    def route(self, w, x, picks):
        y = rms_norm(x, w["ffn_norm"][0], self.eps)
        share = softmax(times(w["ffn_gate_inp"], y))
        chosen = sorted(range(len(share)), key=lambda e: (-share[e], e))[:self.used]
        picks.append(chosen)
        ff = len(w["ffn_gate_exps"]) // len(share)
        for e in chosen:
            gate = times(w["ffn_gate_exps"][e * ff:(e + 1) * ff], y)
            up = times(w["ffn_up_exps"][e * ff:(e + 1) * ff], y)
            inner = [g / (1.0 + math.exp(-g)) * u for g, u in zip(gate, up)]
            down = times(w["ffn_down_exps"][e * len(x):(e + 1) * len(x)], inner)
            x = add(x, [share[e] * v for v in down])
        return x

    def run(self, tokens):
        caches = [[] for _ in self.layers]
        for position, token in enumerate(tokens):
            x, picks = list(self.embedding[token]), []
            for w, cache in zip(self.layers, caches):
                x = self.route(w, self.attend(w, x, position, cache), picks)
            logits = times(self.head, rms_norm(x, self.out_norm, self.eps))
            yield {"token": token, "logits": logits[::16], "best": max(range(len(logits)), key=lambda i: logits[i]),
                   "picks": picks}


def main():
    tokens = [int(word) for word in sys.argv[2:]] or list(range(3, 10))
    rows = list(Model(sys.argv[1]).run(tokens))
    for row in rows:
        row["logits"] = [float("%.9g" % v) for v in row["logits"]]
    print("[" + ",\n ".join(json.dumps(row) for row in rows) + "]")


if __name__ == "__main__":
    main()
