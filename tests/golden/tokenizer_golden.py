#!/usr/bin/env python3
"""Golden values for the tokenizers, by the `tokenizers` package. Writes into tests/golden/tokenizer/:
  bases.json     small vocabularies, trained on a public-domain text
  variants.json  name -> {"base", "patch"}: configurations of those vocabularies
  texts.json     random texts
  hashes.json    name -> one checksum a text, of the lines that `record` joins
Usage: tokenizer_golden.py SHARED_DIR [SEED]
Large vocabularies are read from SHARED_DIR and not copied."""
import json, pathlib, random, sys, unicodedata, zlib
from tokenizers import Tokenizer, models, trainers, pre_tokenizers, normalizers, decoders, AddedToken

shared = pathlib.Path(sys.argv[1])
seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
here = pathlib.Path(__file__).parent / 'tokenizer'
rng = random.Random(seed)
SMALL, ALL = 160, 900  # texts for the variants, for the large vocabularies

corpus = (shared / 'data/text/tiny-heldout.txt').read_text()[:60000]
corpus += " 1234 567 3.14 2024 don't we'll I'm é ü ñ naïve 你好 世界 こんにちは \n\n\t  x  =  y;\n" * 20

# ---- vocabularies
def train_bytes():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator([corpus], trainers.BpeTrainer(vocab_size=420, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(t.to_str())['model']

def train_chars():
    t = Tokenizer(models.BPE(unk_token='<unk>', byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Replace(' ', '▁')
    t.train_from_iterator([corpus[i:i + 40] for i in range(0, 30000, 40)] + [corpus[-400:]],
        trainers.BpeTrainer(vocab_size=700, show_progress=False, limit_alphabet=90,
        special_tokens=['<unk>', '<s>', '</s>'] + ['<0x%02X>' % b for b in range(256)]))
    return json.loads(t.to_str())['model']

bases = {'bytes': train_bytes(), 'chars': train_chars()}

# ---- configurations
def tok(id, content, special=True, **flags):
    d = dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=special)
    d.update(flags); return d

BL = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
def bl(**kw): return dict(BL, **kw)
def seq(key, *items): return {'type': 'Sequence', key: list(items)}
def pre(*items): return seq('pretokenizers', *items)
def norm(*items): return seq('normalizers', *items)
def split(pattern, behavior='Isolated', invert=False, regex=True):
    return {'type': 'Split', 'pattern': {'Regex' if regex else 'String': pattern}, 'behavior': behavior, 'invert': invert}
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace('{1,3}', '')
TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER, SUFFIX = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
FIRST = r"[^\r\n\p{L}\p{N}]?"
KIMI_K2 = "|".join([r"[\p{Han}]+", FIRST + UPPER + "*" + LOWER + "+" + SUFFIX, FIRST + UPPER + "+" + LOWER + "*" + SUFFIX, r"\p{N}{1,3}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
template = {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}, {'SpecialToken': {'id': '</s>', 'type_id': 0}}],
            'pair': [{'Sequence': {'id': 'A', 'type_id': 0}}, {'Sequence': {'id': 'B', 'type_id': 1}}],
            'special_tokens': {'<s>': {'id': '<s>', 'ids': [1], 'tokens': ['<s>']}, '</s>': {'id': '</s>', 'ids': [2], 'tokens': ['</s>']}}}
llama_decoder = seq('decoders', {'type': 'Replace', 'pattern': {'String': '▁'}, 'content': ' '}, {'type': 'ByteFallback'}, {'type': 'Fuse'},
                    {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0})
control = [tok(0, '<unk>'), tok(1, '<s>'), tok(2, '</s>')]
added = [tok(700, '<|end|>'), tok(701, '<|strip|>', lstrip=True, rstrip=True), tok(702, 'word', False, single_word=True),
         tok(703, '<|l|>', lstrip=True), tok(704, '<|r|>', False, rstrip=True), tok(705, 'Norm', False, normalized=True),
         tok(706, '<|', False), tok(707, 'THE', False, normalized=True, single_word=True, lstrip=True), tok(708, '  ', False), tok(709, 'é', False, normalized=True)]
def ms(**kw): return dict({'type': 'Metaspace', 'replacement': '▁', 'prepend_scheme': 'always', 'split': True}, **kw)

variants = {}
def variant(name, base, model=None, **patch):
    patch = {'normalizer': None, 'pre_tokenizer': None, 'post_processor': None, 'decoder': None, 'added_tokens': [], **patch}
    patch['model'] = model or {}
    variants[name] = {'base': base, 'patch': patch}
def b(name, **kw):
    kw.setdefault('decoder', BL); variant(name, 'bytes', **kw)
def c(name, **kw):
    kw.setdefault('decoder', llama_decoder); variant(name, 'chars', **kw)

b('gpt2', pre_tokenizer=BL)
b('gpt2_prefix', pre_tokenizer=bl(add_prefix_space=True), added_tokens=added)
b('byte_no_regex', pre_tokenizer=bl(use_regex=False))
b('smollm', pre_tokenizer=pre({'type': 'Digits', 'individual_digits': True}, BL))
b('llama3', model={'ignore_merges': True}, pre_tokenizer=pre(split(LLAMA3), bl(use_regex=False)), added_tokens=added,
  post_processor=seq('processors', BL, dict(template, special_tokens={'<s>': {'id': '<s>', 'ids': [7], 'tokens': ['<s>']}, '</s>': {'id': '</s>', 'ids': [8], 'tokens': ['</s>']}})))
b('qwen2', normalizer={'type': 'NFC'}, pre_tokenizer=pre(split(QWEN2), bl(use_regex=False)), added_tokens=added)
b('tekken', pre_tokenizer=pre(split(TEKKEN), bl(use_regex=False)))
b('gpt4o', pre_tokenizer=pre(split(GPT4O), bl(use_regex=False)))
b('deepseek_v3', pre_tokenizer=json.loads((shared / 'data/tokenizer/deepseek-v3.tokenizer.json').read_text())['pre_tokenizer'])
b('kimi_k2', model={'ignore_merges': True}, pre_tokenizer=pre(split(KIMI_K2), bl(use_regex=False)))
b('deepseek_coder', pre_tokenizer=pre(split('[\r\n]'), split(r'\s?\p{L}+'), split(r'\s?\p{P}+'), split('[一-龥ࠀ-一가-퟿]+'),
  {'type': 'Digits', 'individual_digits': True}, bl(use_regex=False)))
b('deepseek_llm', pre_tokenizer=pre(split('[\r\n]'), split('\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+'),
  split(r'\s?[!-/:-~！-／：-～‘-‟　-。]+'), split(r'\s+$'), split('[一-龥ࠀ-一가-퟿]+'), {'type': 'Digits', 'individual_digits': True}, bl(use_regex=False)))
b('byte_then_split', pre_tokenizer=pre(BL, split('Ġ', 'MergedWithNext', regex=False)))
b('byte_normalizer', normalizer={'type': 'ByteLevel'}, pre_tokenizer=split(r'Ġ+', 'Isolated'))
b('nfkc_lower', normalizer=norm({'type': 'NFKC'}, {'type': 'Lowercase'}), pre_tokenizer=BL, added_tokens=added)
b('nfd', normalizer={'type': 'NFD'}, pre_tokenizer=BL)
b('nfkd_strip', normalizer=norm({'type': 'NFKD'}, {'type': 'Strip', 'strip_left': True, 'strip_right': True}), pre_tokenizer=BL, added_tokens=added)
b('strip_accents', normalizer=norm({'type': 'NFD'}, {'type': 'StripAccents'}), pre_tokenizer=BL)
b('replace_regex', normalizer=norm({'type': 'Replace', 'pattern': {'Regex': r'\s+'}, 'content': ' '}, {'type': 'Replace', 'pattern': {'Regex': r'[aeiou]{2,}|\d'}, 'content': '<v>'}), pre_tokenizer=BL)
b('regex_mix', pre_tokenizer=pre(split(r'\w+|\d+|[^\w\s]+', 'Removed', True), split(r"(?i:the|and)|\b", 'Isolated'), bl(use_regex=False)))
b('regex_classes', pre_tokenizer=pre(split(r'[\S\d]+?(?=[[:upper:]\h])|^\s+|$', 'MergedWithPrevious'), bl(use_regex=False)))
b('regex_intersection', pre_tokenizer=pre(split(r'[\w&&[^\d_t]]+|[\p{N}&&[0-5²]]+', 'Isolated'), bl(use_regex=False)))
b('byte_no_decoder', pre_tokenizer=BL, decoder=None)
for behavior in ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous']:
    for invert in [False, True]:
        b(f'split_{behavior}_{invert}', pre_tokenizer=pre(split(r'\s|\p{P}', behavior, invert), bl(use_regex=False)))
    b(f'punctuation_{behavior}', pre_tokenizer=pre({'type': 'Punctuation', 'behavior': behavior}, bl(use_regex=False)))
    c(f'split_string_{behavior}', pre_tokenizer=split('th', behavior, regex=False))
b('digits', pre_tokenizer=pre({'type': 'Digits', 'individual_digits': False}, bl(use_regex=False)))
b('whitespace', pre_tokenizer=pre({'type': 'Whitespace'}, bl(use_regex=False)))
b('whitespace_split', pre_tokenizer=pre({'type': 'WhitespaceSplit'}, bl(use_regex=False)))
b('bert', pre_tokenizer=pre({'type': 'BertPreTokenizer'}, bl(use_regex=False)))
b('char_delimiter', pre_tokenizer=pre({'type': 'CharDelimiterSplit', 'delimiter': 'e'}, bl(use_regex=False)))
c('llama2', normalizer=norm({'type': 'Prepend', 'prepend': '▁'}, {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}),
  post_processor=template, added_tokens=control)
c('phi3', normalizer=norm({'type': 'Prepend', 'prepend': '▁'}, {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}),
  added_tokens=control + [dict(t, rstrip=True) for t in added])
c('gemma', normalizer={'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'},
  pre_tokenizer=split(' ', 'MergedWithPrevious', regex=False), added_tokens=control + [tok(700, '\n\n', False), tok(701, '▁▁', False), tok(702, '<t>', False)],
  decoder=seq('decoders', {'type': 'Replace', 'pattern': {'String': '▁'}, 'content': ' '}, {'type': 'ByteFallback'}, {'type': 'Fuse'}))
for scheme in ['always', 'first', 'never']:
    c(f'metaspace_{scheme}', pre_tokenizer=ms(prepend_scheme=scheme), decoder=ms(prepend_scheme=scheme), added_tokens=control + added)
    c(f'metaspace_{scheme}_whole', pre_tokenizer=ms(prepend_scheme=scheme, split=False), decoder=ms(prepend_scheme=scheme), added_tokens=control + added)
c('strip_metaspace', normalizer={'type': 'Strip', 'strip_left': True, 'strip_right': False}, pre_tokenizer=ms(prepend_scheme='first'), decoder=ms())
c('words_metaspace', pre_tokenizer=pre({'type': 'WhitespaceSplit'}, ms(prepend_scheme='always')), decoder=ms())
for fuse in [False, True]:
    c(f'unk_{fuse}', model={'byte_fallback': False, 'fuse_unk': fuse}, pre_tokenizer=ms(), decoder=ms())
c('dropped', model={'byte_fallback': False, 'unk_token': None}, pre_tokenizer=ms(), decoder=ms())
c('ignore_merges', model={'ignore_merges': True}, pre_tokenizer=ms(), decoder=ms())
c('affixes', model={'continuing_subword_prefix': 'e', 'end_of_word_suffix': 's', 'merges': []}, pre_tokenizer={'type': 'WhitespaceSplit'},
  decoder={'type': 'BPEDecoder', 'suffix': 's'})

def build(v):
    model = dict(bases[v['base']], **v['patch']['model'])
    return json.dumps(dict({'version': '1.0', 'truncation': None, 'padding': None}, **{k: x for k, x in v['patch'].items() if k != 'model'}, model=model))

# ---- texts
pieces = ["the", " and", "Hello", "don't", "WE'LL", "I'm", "'S", "'ſ", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "x1", "123", "4567", "3.14", "!?", "...", " -- ",
          "<|end|>", "<|strip|>", " word ", "word", "<|l|>", "<|r|>", "Norm", "norm", " THE ", "THE", "the", "<|", "<s>", "</s>", "<unk>", "<0x41>", "<t>", "▁", "▁▁", "é", "e\u0301", "ﬁ", "Å", "Å", "İ", "Σ", "ΟΔΟΣ", "ß", "①", "Ⅻ", "½", "²", "你好", "世界", "こんにちは", "カタカナ", "한국어", "각", "🙂", "👨‍👩‍👧", "🇩🇪", "\u200b", "\u200d", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\ufeff", "नमस्ते", "१२३", "שלום", "مرحبا", "ไทย", "thththe", "<｜begin▁of▁sentence｜>", "<|begin|>", "_a_", "a_b", "$5", "€", "~", "`", "\u0000", "\x7f", "。", "「", "‘x’"]
def random_char():
    while True:
        kind = rng.random()
        c = rng.randrange(0x20, 0x7f) if kind < .35 else rng.randrange(0x80, 0x600) if kind < .55 else rng.randrange(0x600, 0x10000) if kind < .8 else rng.randrange(0x10000, 0x33000) if kind < .95 else rng.randrange(0, 0x110000)
        if not 0xD800 <= c < 0xE000: return chr(c)
def random_text():
    kind, n = rng.random(), rng.randrange(1, 14)
    if kind < .3: return ''.join(rng.choice(pieces) for _ in range(n))
    if kind < .5: return ''.join(random_char() for _ in range(n * 2))
    if kind < .6:
        start = rng.randrange(len(corpus) - 100); return corpus[start:start + rng.randrange(1, 90)]
    if kind < .65: return rng.choice(['a', 'the', ' ', '\n', '1', 'é', '好', "'"]) * rng.randrange(1, 60)
    return ''.join(rng.choice([rng.choice(pieces), random_char(), ' ']) for _ in range(n * 2))
texts = ['', ' ', 'a', ' a', 'a '] + [random_text() for _ in range(ALL - 5)]

# ---- what is compared
def record(t, text):
    lines = []
    for special in [True, False]:
        t.encode_special_tokens = not special
        for add in [True, False]:
            ids = t.encode(text, add_special_tokens=add).ids
            lines.append(' '.join(map(str, ids)))
        lines.append(t.decode(ids, skip_special_tokens=False))
        lines.append(t.decode(ids, skip_special_tokens=True))
    return '\n'.join(lines)
def checksum(t, text): return '%08x' % zlib.crc32(record(t, text).encode('utf-8', 'surrogatepass'))

if __name__ == '__main__':
    if len(sys.argv) > 3:  # SEED NAME INDEX: show one record
        name, index = sys.argv[3], int(sys.argv[4])
        t = Tokenizer.from_str(build(variants[name])) if name in variants else Tokenizer.from_file(str(shared / name))
        print(repr(texts[index])); print(record(t, texts[index])); print(t.encode(texts[index]).tokens)
        sys.exit()
    here.mkdir(exist_ok=True)
    hashes = {name: [checksum(t, x) for x in texts[:SMALL]] for name, t in ((n, Tokenizer.from_str(build(v))) for n, v in variants.items())}
    for name in ['data/tokenizer/deepseek-v3.tokenizer.json', 'models/tiny-llama/tokenizer.json']:
        t = Tokenizer.from_file(str(shared / name))
        hashes[name] = [checksum(t, x) for x in texts]
    for name, value in [('bases', bases), ('variants', variants), ('texts', texts), ('hashes', {k: ''.join(v) for k, v in hashes.items()})]:
        (here / f'{name}.json').write_text(json.dumps(value, ensure_ascii=True, separators=(',', ':')).replace('],"', '],\n"') + '\n')
