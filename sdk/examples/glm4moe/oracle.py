#!/usr/bin/env python3
"""usage: oracle.py MODEL.gguf [TOKEN …]

GLM-4.5 (glm4moe) in float64 and nothing but Python's own lists, straight from the mathematics: what the plugin
beside it is held to. Reads a small F32 model (`bloomery fixture`, README.md), runs the tokens (3 … 9) as one
prompt, and prints JSON: for each token every 16th logit, the best token, the experts that each layer picked (null
where it has none), and three guesses of the draft head behind the token, each going on from the one before.
"""
import json
import math
import struct
import sys

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY, F32 = 8, 9, 0
GUESSES = 3


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
        """The tensor as rows of ne[0] values, or None."""
        if name not in self.infos:
            return None
        ne, offset = self.infos[name]
        n = math.prod(ne)
        values = struct.unpack_from("<%df" % n, self.data, self.start + offset)
        return [values[i:i + ne[0]] for i in range(0, n, ne[0])]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def times(matrix, x, bias=None):
    out = [dot(row, x) for row in matrix]
    return add(out, bias[0]) if bias else out


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def norm(x, weight, eps):
    if weight is None:
        return list(x)
    scale = 1.0 / math.sqrt(dot(x, x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight[0])]


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    total = math.fsum(e)
    return [v / total for v in e]


def turned(head, position, base, dims):
    """Of the first dims values, value i turns with value i + dims / 2; the others stay."""
    half = dims // 2
    out = list(head)
    for i in range(half):
        angle = position * base ** (-2.0 * i / dims)
        c, s = math.cos(angle), math.sin(angle)
        out[i] = head[i] * c - head[i + half] * s
        out[i + half] = head[i] * s + head[i + half] * c
    return out


def heads_of(x, n):
    size = len(x) // n
    return [x[i * size:(i + 1) * size] for i in range(n)]


def swiglu(x, gate, up, down):
    return times(down, [g * sigmoid(g) * u for g, u in zip(times(gate, x), times(up, x))])


class Model:
    NAMES = ("attn_norm.weight attn_q.weight attn_q.bias attn_k.weight attn_k.bias attn_v.weight attn_v.bias "
             "attn_q_norm.weight attn_k_norm.weight attn_output.weight post_attention_norm.weight ffn_gate.weight "
             "ffn_up.weight ffn_down.weight ffn_gate_inp.weight exp_probs_b.bias ffn_gate_exps.weight "
             "ffn_up_exps.weight ffn_down_exps.weight ffn_gate_shexp.weight ffn_up_shexp.weight "
             "ffn_down_shexp.weight nextn.eh_proj.weight nextn.embed_tokens.weight nextn.enorm.weight "
             "nextn.hnorm.weight nextn.shared_head_head.weight nextn.shared_head_norm.weight").split()

    def __init__(self, path):
        file = Gguf(path)
        key = lambda name: file.keys["glm4moe." + name]
        self.heads, self.kv_heads = key("attention.head_count"), key("attention.head_count_kv")
        self.eps, self.base = key("attention.layer_norm_rms_epsilon"), key("rope.freq_base")
        self.dims, self.used = key("rope.dimension_count"), key("expert_used_count")
        self.scale, self.dense = key("expert_weights_scale"), key("leading_dense_block_count")
        self.embedding = file.rows("token_embd.weight")
        self.out_norm = file.rows("output_norm.weight")
        self.out = file.rows("output.weight") or self.embedding
        blocks, heads = key("block_count"), file.keys.get("glm4moe.nextn_predict_layers", 0)
        layers = [{name: file.rows(f"blk.{l}.{name}") for name in self.NAMES} for l in range(blocks)]
        self.layers, self.head = layers[:blocks - heads], layers[blocks - heads] if heads else None

    def attend(self, w, x, position, cache):
        y = norm(x, w["attn_norm.weight"], self.eps)
        part = lambda name: times(w[f"attn_{name}.weight"], y, w[f"attn_{name}.bias"])
        ready = lambda head, name: turned(norm(head, w[name], self.eps), position, self.base, self.dims)
        cache.append(([ready(h, "attn_k_norm.weight") for h in heads_of(part("k"), self.kv_heads)],
                      heads_of(part("v"), self.kv_heads)))
        mixed = []
        for h, query in enumerate(heads_of(part("q"), self.heads)):
            query, kv = ready(query, "attn_q_norm.weight"), h * self.kv_heads // self.heads
            share = softmax([dot(query, keys[kv]) / math.sqrt(len(query)) for keys, _ in cache])
            mixed += [math.fsum(p * values[kv][i] for p, (_, values) in zip(share, cache))
                      for i in range(len(query))]
        return add(x, times(w["attn_output.weight"], mixed))

    def feed(self, w, x, picks):
        y = norm(x, w["post_attention_norm.weight"], self.eps)
        if w["ffn_gate_inp.weight"] is None:
            picks.append(None)
            return add(x, swiglu(y, w["ffn_gate.weight"], w["ffn_up.weight"], w["ffn_down.weight"]))
        score = [sigmoid(v) for v in times(w["ffn_gate_inp.weight"], y)]
        chosen = sorted(range(len(score)), key=lambda e: (-score[e] - w["exp_probs_b.bias"][0][e], e))[:self.used]
        picks.append(chosen)
        total = math.fsum(score[e] for e in chosen) + 1e-20
        ff = len(w["ffn_gate_exps.weight"]) // len(score)
        for e in chosen:
            rows = lambda name, n: w[name][e * n:(e + 1) * n]
            down = swiglu(y, rows("ffn_gate_exps.weight", ff), rows("ffn_up_exps.weight", ff),
                          rows("ffn_down_exps.weight", len(x)))
            x = add(x, [score[e] / total * self.scale * v for v in down])
        if w["ffn_gate_shexp.weight"] is None:
            return x
        return add(x, swiglu(y, w["ffn_gate_shexp.weight"], w["ffn_up_shexp.weight"], w["ffn_down_shexp.weight"]))

    def step(self, token, hidden, position, cache):
        """Logits of the head for what follows `token`, and its own hidden state."""
        w = self.head
        joined = norm((w["nextn.embed_tokens.weight"] or self.embedding)[token], w["nextn.enorm.weight"], self.eps) \
            + norm(hidden, w["nextn.hnorm.weight"], self.eps)
        x = self.feed(w, self.attend(w, times(w["nextn.eh_proj.weight"], joined), position, cache), [])
        head_norm = w["nextn.shared_head_norm.weight"] or self.out_norm
        return times(w["nextn.shared_head_head.weight"] or self.out, norm(x, head_norm, self.eps)), x

    def guesses(self, token, hidden, position, cache):
        """What it holds likeliest, again and again; `cache` keeps the row of `token` alone."""
        ahead, out = list(cache), []
        for depth in range(GUESSES):
            logits, hidden = self.step(token, hidden, position + depth, ahead)
            share = softmax(logits)
            token = max(range(len(share)), key=lambda i: share[i])
            out.append({"token": token, "probability": float("%.9g" % share[token])})
        cache.append(ahead[len(cache)])
        return out

    def run(self, tokens):
        caches, head_cache = [[] for _ in self.layers], []
        before = [0.0] * len(self.embedding[0])
        for position, token in enumerate(tokens):
            x, picks = list(self.embedding[token]), []
            for w, cache in zip(self.layers, caches):
                x = self.feed(w, self.attend(w, x, position, cache), picks)
            hidden = norm(x, self.out_norm, self.eps)
            logits = times(self.out, hidden)
            row = {"token": token, "logits": [float("%.9g" % v) for v in logits[::16]],
                   "best": max(range(len(logits)), key=lambda i: logits[i]), "picks": picks}
            if self.head:
                row["draft"] = self.guesses(token, before, position, head_cache)
            before = hidden
            yield row


def main():
    tokens = [int(word) for word in sys.argv[2:]] or list(range(3, 10))
    print("[" + ",\n ".join(json.dumps(row) for row in Model(sys.argv[1]).run(tokens)) + "]")


if __name__ == "__main__":
    main()
