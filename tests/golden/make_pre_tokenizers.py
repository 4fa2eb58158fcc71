#!/usr/bin/env python3
"""Golden values for the names in tokenizer.ggml.pre of families whose vocabularies are not at hand: a small vocabulary whose merges cross every
border that a pattern could draw (it is trained without one), so that its ids tell where a text is cut, and checksums of the ids that the
`tokenizers` package gives with each family's published pattern (those of variants.json) on random texts (every third of texts.json).
Writes tests/golden/tokenizer/pre_tokenizers.json: {"tokens", "merges", "checksums": {name: eight digits a text, or another name of the same}}.
Usage: make_pre_tokenizers.py TEXT-TO-TRAIN-ON"""
import json
import pathlib
import sys
import zlib

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

here = pathlib.Path(__file__).parent / "tokenizer"
# name, variant, and whether the family takes a whole piece that is a token without merging
NAMES = [("gpt-2", "gpt2", False), ("phi-2", "gpt2", False), ("mpt", "gpt2", False), ("olmo", "gpt2", False), ("jais", "gpt2", False),
         ("smollm", "smollm", False), ("starcoder", "smollm", False), ("refact", "smollm", False), ("command-r", "smollm", False),
         ("codeshell", "smollm", False), ("llama-bpe", "llama3", True), ("llama3", "llama3", True), ("llama-v3", "llama3", True),
         ("dbrx", "llama3", False), ("smaug-bpe", "llama3", False), ("chatglm-bpe", "llama3", False), ("glm4", "llama3", True),
         ("qwen2", "qwen2", False), ("deepseek-llm", "deepseek_llm", False), ("deepseek-coder", "deepseek_coder", False),
         ("deepseek-v3", "deepseek_v3", False), ("tekken", "tekken", True), ("gpt-4o", "gpt4o", False), ("llama4", "gpt4o", False),
         ("kimi-k2", "kimi_k2", True)]


def main():
    variants = json.loads((here / "variants.json").read_text())
    texts = json.loads((here / "texts.json").read_text())
    corpus = pathlib.Path(sys.argv[1]).read_text()[:20000]
    corpus += " 1234 567 3.14 2024 don't we'LL I'm HTTPServer iPhone é e\u0301 naïve 你好世界2 こんにちは한국어 \r\n\n\t  x  =  y;\n//a/\n--\n" * 30
    # Other texts of the same kind, so that what is random has merges too.
    pieces = corpus.split("\f") + [t for i, t in enumerate(texts) if i % 3 == 1]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.train_from_iterator([p[i:i + 60] for p in pieces for i in range(0, len(p), 60)], trainers.BpeTrainer(
        vocab_size=1000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)

    checksums, seen = {}, {}
    for name, variant, whole in NAMES:
        patch = {k: v for k, v in variants[variant]["patch"].items() if k in ("normalizer", "pre_tokenizer")}
        t = Tokenizer.from_str(json.dumps(dict(patch, version="1.0", truncation=None, padding=None, post_processor=None, decoder=None,
                                               added_tokens=[], model=dict(model, ignore_merges=whole))))
        lines = [" ".join(map(str, t.encode(x).ids)) for x in texts[::3]]
        value = "".join("%08x" % zlib.crc32(line.encode()) for line in lines)
        checksums[name] = seen.setdefault(value, name) if value in seen else value
        seen.setdefault(value, name)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    dump = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    lines = ",\n".join(f"{dump(k)}:{dump(v)}" for k, v in checksums.items())
    (here / "pre_tokenizers.json").write_text(f'{{"tokens":{dump(tokens)},\n"merges":{dump(merges)},\n"checksums":{{\n{lines}}}}}\n')
    print(len(tokens), "tokens,", len(seen), "different of", len(NAMES))


if __name__ == "__main__":
    main()
