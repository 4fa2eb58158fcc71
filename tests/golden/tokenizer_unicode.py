#!/usr/bin/env python3
"""Makes src/tokenizer/unicode_*.inc: where the `tokenizers` package and the linked libraries follow different versions
of Unicode. Found by asking the package about every code point. Needs Python 3.11 (Unicode 14, as PCRE2 10.42)."""
import pathlib, unicodedata
from tokenizers import Regex, normalizers, pre_tokenizers
assert unicodedata.unidata_version == '14.0.0'
out = pathlib.Path(__file__).parents[2] / 'src/tokenizer'
points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
wide = [c for c in points if c >= 0x80]

def kept(pre, separator=''):
    """Code points that a pre-tokenizer lets through."""
    found = set()
    for i in range(0, len(points), 4096):
        for word, _ in pre.pre_tokenize_str(''.join(map(chr, points[i:i + 4096]))):
            found.update(map(ord, word))
    return found
def matches(regex): return kept(pre_tokenizers.Split(Regex(regex), 'removed', invert=True))
def ranges(values):
    result = []
    for c in sorted(values):
        if result and result[-1][1] == c - 1: result[-1][1] = c
        else: result.append([c, c])
    return result
def write(name, comment, lines):
    (out / f'unicode_{name}.inc').write_text(f'// {comment}\n// Made by tests/golden/tokenizer_unicode.py; nothing else lives here.\n' + ''.join(x + '\n' for x in lines))
def write_set(name, comment, values): write(name, comment, ['{0x%05X, 0x%05X},' % (a, b) for a, b in ranges(values)])

classes = {}
decimal = matches(r'\p{Nd}')
for letter, name in (('L', 'kLetter'), ('N', 'kOtherNumber'), ('P', 'kPunctuation'), ('S', 'kSymbol'), ('M', 'kMark')):
    for c in matches(r'\p{%s}' % letter):
        if unicodedata.category(chr(c)) == 'Cn': classes[c] = 'kDecimal' if c in decimal else name
rows = []
for c in sorted(classes):
    if rows and rows[-1][1] == c - 1 and rows[-1][2] == classes[c]: rows[-1][1] = c
    else: rows.append([c, c, classes[c]])
write('additions', 'Code points assigned after Unicode 14, up to 16: first, last, class.', ['{0x%05X, 0x%05X, %s},' % tuple(r) for r in rows])

# The same by categories and by the scripts that patterns name, for patterns that ask for them.
rows = []
for name in 'Lu Ll Lt Lm Lo Mn Mc Me Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Han Hiragana Katakana Hangul'.split():
    new = [c for c in matches(r'\p{%s}' % name) if unicodedata.category(chr(c)) == 'Cn']
    rows += ['{"%s", 0x%05X, 0x%05X},' % (name, a, b) for a, b in ranges(new)]
write('subclasses', 'Code points assigned after Unicode 14, up to 16, by category and script: name, first, last.', rows)

punctuation = set(points) - kept(pre_tokenizers.Punctuation('removed'))
is_p = matches(r'\p{P}')
write_set('punctuation', 'Code points that the Punctuation pre-tokenizer classes differently from category P.', {c for c in punctuation ^ is_p if c >= 0x80})

strip = normalizers.StripAccents()
stripped = {c for c in wide if strip.normalize_str(chr(c)) == ''}
write_set('accents', 'Code points that the StripAccents normalizer classes differently from category M.', stripped ^ matches(r'\p{M}'))

# Normal forms follow an older version: what it does not know neither decomposes nor moves nor lets others past it.
inert = set()
nfkd, nfd = normalizers.NFKD(), normalizers.NFD()
for c in wide:
    s = chr(c)
    if nfkd.normalize_str(s) != unicodedata.normalize('NFKD', s) or nfd.normalize_str(s) != unicodedata.normalize('NFD', s):
        inert.add(c)
marks = [c for c in matches(r'\p{M}')]
for c in marks:
    ccc = unicodedata.combining(chr(c))
    new = unicodedata.category(chr(c)) == 'Cn'
    if ccc == 0 and not new: continue
    first, last = chr(0x334), chr(0x345)  # combining classes 1 and 240
    moves = nfd.normalize_str('a' + chr(c) + first) != 'a' + chr(c) + first or nfd.normalize_str('a' + last + chr(c)) != 'a' + last + chr(c)
    if not moves: inert.add(c)
inert -= {0x334, 0x345}
inert = {c for c in inert if unicodedata.combining(chr(c)) not in (1, 240) or nfd.normalize_str('a' + chr(0x301) + chr(c)) == 'a' + chr(0x301) + chr(c) and unicodedata.combining(chr(c)) == 1}
write_set('inert', 'Code points that the normal forms of the `tokenizers` package do not know.', inert)

lower = normalizers.Lowercase()
rows = []
for c in wide:
    low = lower.normalize_str(chr(c))
    if low == chr(c).lower(): continue
    delta = ord(low) - c
    if rows and rows[-1][1] == c - 1 and rows[-1][2] == delta: rows[-1][1] = c
    else: rows.append([c, c, delta])
write('lower', 'Lower-case mappings added after Unicode 14: first, last, distance.', ['{0x%05X, 0x%05X, %d},' % tuple(r) for r in rows])

digits = pre_tokenizers.Digits(individual_digits=True)
numeric = set()
for i in range(0, len(wide), 4096):
    text = 'x' + 'x'.join(map(chr, wide[i:i + 4096])) + 'x'
    numeric.update(ord(w) for w, _ in digits.pre_tokenize_str(text) if len(w) == 1 and w != 'x')
write_set('numeric', 'Code points that the Digits pre-tokenizer classes differently from category N.', numeric ^ {c for c in matches(r'\p{N}') if c >= 0x80})
