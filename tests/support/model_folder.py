"""A GGUF model file of the oracle sets as a safetensors folder, written from the published names alone: what the
conversion back is tested against. Also reads GGUF. Needs no package.

  model_folder.py MODEL.gguf CONFIG.json OUT [--shards N] [--wrapped]

writes the folder OUT; --wrapped in the form of the released multimodal models: longer names, experts of a layer in two
tensors, the text model's config inside, and tensors of a part that text models lack.
"""
import argparse
import json
import math
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
# Layers of the hybrid models: what has no other values, what becomes 1 + w in the model file, and what is indexed by
# value head: by which axis, and in blocks of how many entries.
SHARED = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ssm_norm": "linear_attn.norm",
}
OFFSETS = ("attn_norm", "post_attention_norm", "attn_q_norm", "attn_k_norm", "output_norm", "nextn.enorm", "nextn.hnorm",
           "nextn.shared_head_norm")
BY_HEAD = {
    "attn_qkv.weight": ("linear_attn.in_proj_qkv.weight", 1, 128),
    "attn_gate.weight": ("linear_attn.in_proj_z.weight", 1, 128),
    "ssm_alpha.weight": ("linear_attn.in_proj_a.weight", 1, 1),
    "ssm_beta.weight": ("linear_attn.in_proj_b.weight", 1, 1),
    "ssm_a": ("linear_attn.A_log", 0, 1),
    "ssm_dt.bias": ("linear_attn.dt_bias", 0, 1),
    "ssm_conv1d.weight": ("linear_attn.conv1d.weight", 1, 128),
    "ssm_out.weight": ("linear_attn.out_proj.weight", 0, 128),
}
DRAFT = {"nextn.eh_proj": "mtp.fc", "nextn.enorm": "mtp.pre_fc_norm_embedding", "nextn.hnorm": "mtp.pre_fc_norm_hidden",
         "nextn.shared_head_norm": "mtp.norm"}


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


def f32(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def to_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def to_bf16(value):
    """The nearest value that has two bytes, as those bytes."""
    bits, = struct.unpack("<I", struct.pack("<f", value))
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def from_bf16(data):
    return struct.unpack("<f", b"\0\0" + data)[0]


def offsets(data):
    """The w of values 1 + w: (type, bytes), two bytes a value where those hold it."""
    values = f32(data)
    short = [to_bf16(value - 1) for value in values]
    if all(to_f32(1 + from_bf16(w)) == value for w, value in zip(short, values)):
        return 30, b"".join(short)
    assert all(to_f32(1 + to_f32(value - 1)) == value for value in values)
    return 0, b"".join(struct.pack("<f", value - 1) for value in values)


def logs(data):
    """The A_log of values -exp(A_log), which were rounded to two bytes before; exp in float32 may have been a bit off."""
    short = [to_bf16(math.log(-value)) for value in f32(data)]
    assert all(abs(math.exp(from_bf16(w)) / value + 1) < 3e-7 for w, value in zip(short, f32(data)))
    return 30, b"".join(short)


def grouped(data, entry, key_heads, value_heads, block):
    """The last value_heads * block entries of `entry` bytes by head of the folder, g * r + j, where the file has
    j * key_heads + g: head g * r + j reads the keys of head g here and there."""
    size = entry * block
    start = len(data) - value_heads * size
    ratio = value_heads // key_heads
    heads = [b""] * value_heads
    for j in range(ratio):
        for g in range(key_heads):
            at = start + (j * key_heads + g) * size
            heads[g * ratio + j] = data[at:at + size]
    return data[:start] + b"".join(heads)


def by_head(gguf, part, ne, kind, data):
    """A tensor indexed by value head as the folder has it: name, type, bytes."""
    name, axis, block = BY_HEAD[part]
    prefix = gguf.get("general.architecture") + ".ssm."
    key_heads, value_heads = gguf.get(prefix + "group_count"), gguf.get(prefix + "time_step_rank")
    if part == "ssm_a":
        kind, data = logs(data)
    size = BYTES[kind]
    if axis == 1:
        return name, kind, grouped(data, size * ne[0], key_heads, value_heads, block)
    rows = [data[at:at + size * ne[0]] for at in range(0, len(data), size * ne[0])]
    return name, kind, b"".join(grouped(row, size, key_heads, value_heads, block) for row in rows)


def layer_prefix(gguf, layer):
    """Of a layer, or of a draft block behind them."""
    prefix = gguf.get("general.architecture")
    drafts = gguf.keys.get(prefix + ".nextn_predict_layers", (4, 0))[1]
    trunk = gguf.get(prefix + ".block_count") - drafts
    return f"model.layers.{layer}." if layer < trunk else f"mtp.layers.{layer - trunk}."


def folder_tensors(gguf, wrapped=False):
    """name -> (dtype, shape, bytes). What was bf16 before it became f32 is that again."""
    out = {}
    hybrid = any("ssm_" in name for name in gguf.tensors)

    def put(name, ne, kind, data):
        if kind == 0 and data[0::4].count(0) + data[1::4].count(0) == len(data) // 2:  # exact in bf16
            kind, data = 30, b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
        shape = list(reversed(ne))
        if name.endswith("conv1d.weight"):
            shape.insert(1, 1)
        if name.endswith("shared_expert_gate.weight"):
            shape.insert(0, 1)
        out[name] = (DTYPES[kind], shape, data)

    def put_experts(prefix, ne, kind, part, data):
        step = len(data) // ne[2]
        for e in range(ne[2]):
            put(f"{prefix}mlp.experts.{e}.{EXPERT[part]}.weight", ne[:2], kind, data[e * step:(e + 1) * step])

    for name, (ne, kind, data) in gguf.tensors.items():
        block, layer, part = name.split(".", 2) if name.startswith("blk.") else ("", 0, name)
        stem = part.removesuffix(".weight")
        if hybrid and stem in OFFSETS:
            kind, data = offsets(data)
        if name in WHOLE:
            put(WHOLE[name], ne, kind, data)
            continue
        prefix = layer_prefix(gguf, int(layer))
        if stem in DRAFT:
            put(DRAFT[stem] + ".weight", ne, kind, data)
        elif part in BY_HEAD:
            head_name, kind, data = by_head(gguf, part, ne, kind, data)
            put(prefix + head_name, ne, kind, data)
        elif stem in EXPERT:
            put_experts(prefix, ne, kind, stem, data)
        else:
            stem = "ffn_norm" if stem == "post_attention_norm" else stem
            put(prefix + {**LAYER, **SHARED}[stem] + ".weight", ne, kind, data)
    return wrapped_tensors(out) if wrapped else out


def wrapped_tensors(tensors):
    """The same as released multimodal models have it."""
    out, stacks = {"model.visual.patch_embed.proj.bias": ("BF16", [4], bytes(8))}, {}
    for name, (dtype, shape, data) in tensors.items():
        if name.startswith("model."):
            name = "model.language_model." + name.removeprefix("model.")
        if ".mlp.experts." in name:
            layer, _, rest = name.partition("mlp.experts.")
            e, part = rest.split(".")[:2]
            stacks.setdefault(layer, {})[int(e), part] = (dtype, shape, data)
            continue
        out[name] = (dtype, shape, data)
    for layer, parts in stacks.items():
        experts = 1 + max(e for e, _ in parts)
        dtype, (ff, width), _ = parts[0, "gate_proj"]
        both = [parts[e, part][2] for e in range(experts) for part in ("gate_proj", "up_proj")]
        out[layer + "mlp.experts.gate_up_proj"] = (dtype, [experts, 2 * ff, width], b"".join(both))
        down = [parts[e, "down_proj"][2] for e in range(experts)]
        out[layer + "mlp.experts.down_proj"] = (dtype, [experts, width, ff], b"".join(down))
    return out


def wrapped_config(config, drafts):
    """Text models' config inside the multimodal models': layers by interval, and how many draft blocks."""
    text = dict(config, mtp_num_hidden_layers=max(drafts, 1))
    kinds = text.pop("layer_types")
    text["full_attention_interval"] = kinds.index("full_attention") + 1
    tied = text.pop("tie_word_embeddings")
    return {"model_type": text["model_type"].removesuffix("_text"), "architectures": ["Qwen3_5MoeForConditionalGeneration"],
            "text_config": text, "vision_config": {"depth": 1}, "tie_word_embeddings": tied}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


# How the models of the sets split text.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
         r"|\s+")


def pre_tokenizer(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "use_regex": False}]}


def tokenizer(gguf):
    tokens, types = gguf.get("tokenizer.ggml.tokens"), gguf.get("tokenizer.ggml.token_type")
    return {
        "pre_tokenizer": pre_tokenizer(SPLIT),
        "added_tokens": [{"id": i, "content": text, "special": types[i] == 3}
                         for i, text in enumerate(tokens) if types[i] != 1],
        "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in gguf.get("tokenizer.ggml.merges")]},
    }


def write_folder(gguf, config, out, shards=2, wrapped=False):
    """The model as `out`: one model.safetensors, or several with an index."""
    tensors = folder_tensors(gguf, wrapped)
    if wrapped:
        config = wrapped_config(config, gguf.keys.get("qwen35moe.nextn_predict_layers", (4, 0))[1])
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("config")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--wrapped", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    config = json.loads(pathlib.Path(args.config).read_text())
    write_folder(Gguf(args.model), config, args.out, args.shards, args.wrapped)


if __name__ == "__main__":
    main()
