"""A GGUF model file of the mini set as a safetensors folder, written from the published names alone: what the
conversion back is tested against. Also reads GGUF. Needs no package."""
import json
import pathlib
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
BYTES = {0: 4, 1: 2, 30: 2}  # of the types a bf16 model has
DTYPES = {0: "F32", 1: "F16", 30: "BF16"}
WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate_inp": "mlp.gate",
}
EXPERT = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}


class Gguf:
    """keys: name -> (type, value); tensors: name -> (ne, type, bytes). Plain types only."""

    def __init__(self, path):
        self.data, self.at = pathlib.Path(path).read_bytes(), 8
        n_tensors, n_keys = self.scalar("Q"), self.scalar("Q")
        self.keys, places = {}, []
        for _ in range(n_keys):
            key, kind = self.text(), self.scalar("I")
            self.keys[key] = (kind, self.value(kind))
        for _ in range(n_tensors):
            name = self.text()
            ne = tuple(self.scalar("Q") for _ in range(self.scalar("I")))
            places.append((name, ne, self.scalar("I"), self.scalar("Q")))
        start = (self.at + 31) // 32 * 32
        self.tensors = {}
        for name, ne, kind, offset in places:
            size = BYTES[kind]
            for n in ne:
                size *= n
            self.tensors[name] = (ne, kind, self.data[start + offset:start + offset + size])

    def scalar(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.scalar("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, count = self.scalar("I"), self.scalar("Q")
            return [self.value(kind) for _ in range(count)]
        return self.scalar(SCALARS[kind])

    def get(self, key):
        return self.keys[key][1]


def retyped(path, name, kind):
    """The file's bytes with another type id at one tensor, its data as it was."""
    data, key = bytearray(pathlib.Path(path).read_bytes()), name.encode()
    at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
    dims, = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at + 4 + 8 * dims, kind)
    return bytes(data)


def folder_tensors(gguf):
    """name -> (dtype, shape, bytes). Norms and routers as the bf16 they were before they became f32."""
    out = {}

    def put(name, ne, kind, data):
        if kind == 0:
            assert data[0::4].count(0) + data[1::4].count(0) == len(data) // 2, name  # exact in bf16
            data = b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
        out[name] = ("BF16", list(reversed(ne)), data)

    for name, (ne, kind, data) in gguf.tensors.items():
        if name in WHOLE:
            put(WHOLE[name], ne, kind, data)
            continue
        _, layer, part, _ = name.split(".")
        prefix = f"model.layers.{layer}."
        if part in LAYER:
            put(prefix + LAYER[part] + ".weight", ne, kind, data)
            continue
        step = len(data) // ne[2]
        for e in range(ne[2]):
            put(f"{prefix}mlp.experts.{e}.{EXPERT[part]}.weight", ne[:2], kind, data[e * step:(e + 1) * step])
    return out


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def tokenizer(gguf):
    tokens, types = gguf.get("tokenizer.ggml.tokens"), gguf.get("tokenizer.ggml.token_type")
    return {
        "added_tokens": [{"id": i, "content": text, "special": types[i] == 3}
                         for i, text in enumerate(tokens) if types[i] != 1],
        "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in gguf.get("tokenizer.ggml.merges")]},
    }


def write_folder(gguf, config, out, shards=2):
    """The model as `out`: one model.safetensors, or several with an index."""
    tensors = folder_tensors(gguf)
    if shards == 1:
        write_safetensors(out / "model.safetensors", tensors)
    else:
        places, names = {}, list(tensors)
        for i in range(shards):
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            part = names[i::shards]  # neighbours, also experts of one layer, lie in different files
            write_safetensors(out / file, {name: tensors[name] for name in part})
            places.update({name: file for name in part})
        (out / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (out / "config.json").write_text(json.dumps(config))
    (out / "tokenizer.json").write_text(json.dumps(tokenizer(gguf)))
    tokens = gguf.get("tokenizer.ggml.tokens")
    (out / "tokenizer_config.json").write_text(json.dumps({
        "add_bos_token": False, "eos_token": {"content": tokens[gguf.get("tokenizer.ggml.eos_token_id")]},
        "pad_token": tokens[gguf.get("tokenizer.ggml.padding_token_id")],
        "chat_template": gguf.get("tokenizer.chat_template")}))
