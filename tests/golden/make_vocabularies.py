#!/usr/bin/env python3
"""Small vocabularies for the tests of GGUF tokenizers: those in llama.cpp's models folder, cut to what its test texts can use, and the ids that
llama.cpp records for these texts. Writes vocab-NAME.gguf and vocab-NAME.jsonl (a line {"text", "ids"} each) into tests/golden/tokenizer.

A token stays if its text is part of some text (as bytes of the byte-level alphabet, or with marks for spaces), and a merge if its three tokens
do: then nothing that can happen to these texts has changed, except that tokens have other ids. Ids in the metadata and the vectors are
renumbered. The folder comes from the source package of llama-cpp-python, by pip, unless given.
Needs gguf. Usage: make_vocabularies.py [FOLDER]
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unicodedata

import gguf

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
NAMES = ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder", "command-r", "starcoder", "mpt", "refact", "llama-spm", "phi-3"]
VERSION = "0.3.36"
NORMAL, MARK = 1, "\u2581"


def fetch(folder):
    """Unpacks llama.cpp's models folder into `folder`."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder,
                    "llama-cpp-python==" + VERSION], check=True)
    package = next(f for f in os.listdir(folder) if f.endswith(".tar.gz"))
    with tarfile.open(os.path.join(folder, package)) as archive:
        for member in archive.getmembers():
            if "/vendor/llama.cpp/models/ggml-vocab-" in member.name and member.isfile():
                member.name = os.path.basename(member.name)
                archive.extract(member, folder, filter="data")


def byte_alphabet():
    """The characters that stand for bytes in byte-level vocabularies."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    table, extra = {b: chr(b) for b in plain}, 256
    for b in range(256):
        if b not in table:
            table[b] = chr(extra)
            extra += 1
    return table


def cut(folder, name):
    path = os.path.join(folder, f"ggml-vocab-{name}.gguf")
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens, types, model = get("tokens"), get("token_type"), get("model")
    with open(path + ".inp", encoding="utf-8", newline="") as file:
        texts = file.read().split("\n__ggml_vocab_test__\n")
    with open(path + ".out") as file:
        ids = [[int(x) for x in line.split()] for line in file.read().split("\n")][:len(texts)]
    forms = [t for text in texts for t in (text, unicodedata.normalize("NFC", text))]
    if model == "gpt2":
        table = byte_alphabet()
        corpus = "\n".join("".join(table[b] for b in t.encode()) for t in forms)
        alphabet = set(table.values())
    else:
        corpus = "\0".join(MARK + t.replace(" ", MARK) for t in forms)
        alphabet = set()
    special = {key: get(key) for key in ("bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id", "eot_token_id")
               if "tokenizer.ggml." + key in fields}
    used = set(special.values()) | {i for line in ids for i in line}
    kept = [i for i, t in enumerate(tokens)
            if i in used or t in alphabet or types[i] in (2, 6) or (t in corpus and types[i] in (NORMAL, 4))]
    renumbered = {old: new for new, old in enumerate(kept)}
    present = {tokens[i] for i in kept}

    writer = gguf.GGUFWriter(os.path.join(OUT, f"vocab-{name}.gguf"), fields["general.architecture"].contents())
    writer.add_tokenizer_model(model)
    if "tokenizer.ggml.pre" in fields:
        writer.add_tokenizer_pre(get("pre"))
    writer.add_token_list([tokens[i] for i in kept])
    writer.add_token_types([types[i] for i in kept])
    if "tokenizer.ggml.scores" in fields:
        scores = get("scores")
        writer.add_token_scores([scores[i] for i in kept])
    if "tokenizer.ggml.merges" in fields:
        pairs = (m.split(" ") for m in get("merges"))
        writer.add_token_merges([" ".join(p) for p in pairs if p[0] in present and p[1] in present and "".join(p) in present])
    for key, value in special.items():
        writer.add_uint32("tokenizer.ggml." + key, renumbered[value])
    for key in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        if "tokenizer.ggml." + key in fields:
            writer.add_bool("tokenizer.ggml." + key, get(key))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with open(os.path.join(OUT, f"vocab-{name}.jsonl"), "w") as file:
        for text, line in zip(texts, ids):
            file.write(json.dumps({"text": text, "ids": [renumbered[i] for i in line]}) + "\n")
    print(name, len(tokens), "tokens, kept", len(kept), os.path.getsize(os.path.join(OUT, f"vocab-{name}.gguf")), "bytes,", len(texts), "texts")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = sys.argv[1] if len(sys.argv) > 1 else temporary
        if len(sys.argv) == 1:
            fetch(folder)
        for name in NAMES:
            cut(folder, name)


if __name__ == "__main__":
    main()
