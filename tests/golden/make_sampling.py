#!/usr/bin/env python3
"""Writes sampling.jsonl: what transformers' logits processors leave of rows of logits, for the sampler's golden test.

Needs torch and transformers. Logits come from a small generator that the test repeats, on a grid of 1/16, so that
there are ties. torch.sort orders equals in any way it likes; here it is made to put higher ids first, so that where top-p cuts
through equals the lower ids stay, as argmax would have it. The processors run in the order in which GenerationMixin puts them; OpenAI's frequency and presence penalties,
which transformers lacks, follow the repetition penalty, in float32, over generated tokens only.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from transformers.generation.logits_process import (
    LogitsProcessor, LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)


def generator(seed):
    state = seed & 0xFFFFFFFF
    while True:
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        yield state >> 8


def make_logits(seed, vocab, spread):
    numbers = generator(seed)
    # The square makes a few tokens stand out, as in language.
    values = [next(numbers) % 4096 for _ in range(vocab)]
    return [((v * v) >> 12) * spread / 256.0 // 1 / 16.0 - spread / 4.0 for v in values]


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def uniform(seed, position):
    r = philox((position & 0xFFFFFFFF, position >> 32, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))
    return (((r[1] << 32) | r[0]) >> 11) * 2.0**-53


class OpenAiPenalties(LogitsProcessor):
    def __init__(self, frequency, presence, prompt_length):
        self.frequency, self.presence, self.prompt_length = frequency, presence, prompt_length

    def __call__(self, input_ids, scores):
        counts = torch.bincount(input_ids[0, self.prompt_length:], minlength=scores.shape[-1]).to(torch.float32)
        penalty = torch.where(counts > 0, self.presence, 0.0)
        return scores - counts * torch.tensor(self.frequency) - penalty


def sort_with_order_among_equals(scores, descending=False):
    assert not descending
    values, indices = TORCH_SORT(scores.flip(-1), dim=-1, stable=True)
    return values, scores.shape[-1] - 1 - indices


TORCH_SORT = torch.sort
torch.sort = sort_with_order_among_equals


def run(case):
    vocab = case["vocab"]
    scores = torch.tensor([make_logits(case["logits_seed"], vocab, case["spread"])], dtype=torch.float32)
    ids = torch.tensor([case["prompt"] + case["generated"]], dtype=torch.long).reshape(1, -1)
    keep = case.get("min_keep", 1)
    processors = LogitsProcessorList()
    if case.get("bias"):
        processors.append(SequenceBiasLogitsProcessor([[[t], b] for t, b in case["bias"]]))
    if case.get("repetition", 1.0) != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(case["repetition"]))
    if case.get("frequency") or case.get("presence"):
        processors.append(OpenAiPenalties(case.get("frequency", 0.0), case.get("presence", 0.0), len(case["prompt"])))
    if case.get("temperature", 1.0) != 1.0:
        processors.append(TemperatureLogitsWarper(case["temperature"]))
    if case.get("top_k"):
        processors.append(TopKLogitsWarper(case["top_k"], min_tokens_to_keep=keep))
    if case.get("top_p", 1.0) < 1.0:
        processors.append(TopPLogitsWarper(case["top_p"], min_tokens_to_keep=keep))
    if case.get("min_p"):
        processors.append(MinPLogitsWarper(case["min_p"], min_tokens_to_keep=keep))
    out = processors(ids, scores)[0]
    probabilities = torch.softmax(out.to(torch.float64), -1).numpy()
    kept = [i for i in range(vocab) if out[i] > -float("inf")]
    result = dict(case)
    result["kept"] = len(kept)
    result["kept_sum"] = sum(kept)  # with the squares, this pins the set where it is long
    result["kept_squares"] = sum(i * i for i in kept)
    result["ids"] = kept[:24]
    result["probabilities"] = [float(f"{probabilities[i]:.9g}") for i in kept[:24]]
    result["greedy"] = int(np.argmax(out.numpy()))
    cdf = np.cumsum(probabilities)
    result["draws"] = []
    for position in range(case["position"], case["position"] + 8):
        u = uniform(case["seed"], position) * cdf[-1]
        token = int(np.searchsorted(cdf, u, side="right"))
        # A draw so near a step of the distribution that rounding decides is no test.
        near = min(abs(cdf[token] - u), abs(u - (cdf[token - 1] if token else 0.0)))
        result["draws"].append(token if near > 1e-5 else -1)
    return result


def cases():
    base = dict(vocab=1000, spread=14.0, logits_seed=1, prompt=[3, 3, 17, 999], generated=[5, 5, 5, 17], seed=7, position=8)

    def case(**changes):
        return {**base, "logits_seed": case_seed(), "seed": 0xDEADBEEF01234567 + case_seed.count, **changes}

    def case_seed():
        case_seed.count += 1
        return case_seed.count * 7919
    case_seed.count = 0

    yield case()
    yield case(vocab=5003)
    for t in (0.1, 0.7, 1.3, 5.0):
        yield case(temperature=t)
    for k in (1, 2, 5, 40, 600, 999, 1000, 5000):
        yield case(top_k=k)
    yield case(top_k=50, spread=0.5)  # hardly any different values: ties at the border
    yield case(top_k=2, min_keep=3)
    for p in (0.0, 0.01, 0.31, 0.5, 0.9, 0.95, 0.999):
        yield case(top_p=p)
    for p in (0.25, 0.6, 0.97):
        yield case(top_p=p, spread=0.5)  # the cut goes through equals
    yield case(top_p=0.9, spread=2.0, vocab=3001)
    yield case(top_p=0.9, temperature=3.0, vocab=3001)
    yield case(top_p=0.01, min_keep=4, spread=40.0)
    for p in (0.01, 0.05, 0.3, 1.0):
        yield case(min_p=p)
    yield case(min_p=0.9, min_keep=5, spread=60.0)
    yield case(min_p=1e-6, spread=40.0)
    yield case(repetition=1.3)
    yield case(repetition=0.6, generated=[])
    yield case(frequency=0.7)
    yield case(presence=1.5)
    yield case(frequency=-0.4, presence=-0.2)
    yield case(frequency=0.3, presence=0.5, repetition=1.2)
    yield case(bias=[[5, 12.0], [17, -100.0], [0, 3.5]])
    yield case(bias=[[999, 9.0], [3, 9.0]], repetition=1.5, presence=0.25)
    yield case(bias=[[2, -1e9]], top_k=20, top_p=0.9, min_p=0.05, temperature=0.8, repetition=1.1, frequency=0.2,
               presence=0.1)
    yield case(top_k=40, top_p=0.9, temperature=1.7)
    yield case(top_k=40, top_p=0.5, min_p=0.1, spread=1.0)
    yield case(top_k=30, min_p=0.2, temperature=0.5)
    yield case(top_p=0.97, min_p=0.02)
    yield case(vocab=17, spread=3.0, prompt=[1, 2, 3], generated=[4], repetition=1.1, top_p=0.8)
    yield case(vocab=1, prompt=[0], generated=[0], top_p=0.5)


def main():
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("sampling.jsonl"))
    with path.open("w", encoding="utf-8") as out:
        for case in cases():
            out.write(json.dumps(run(case)) + "\n")


if __name__ == "__main__":
    main()
