"""Makes `pre_splits.json`: how Python's module `regex` cuts texts by the pre-tokenizers' published expressions.

    pip install regex==2026.11.19    # or any other version; the characters are old ones
    python goldens/make_pre_splits.py

The expressions are those of the makers' `tokenizer.json`, where their look-aheads and possessive forms are written out; for
rules that llama.cpp alone has (`default`), its own. Each one cuts what the one before it left.
"""

import json
import pathlib
import random

import regex

C = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
CASED = r"[^\r\n\p{L}\p{N}]?[%s]*[%s]+{0}|[^\r\n\p{L}\p{N}]?[%s]+[%s]*{0}" % (UPPER, LOWER, UPPER, LOWER)
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
K2 = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[[%s]&&[^\p{Han}]]*[[%s]&&[^\p{Han}]]+C?|[^\r\n\p{L}\p{N}]?[[%s]&&[^\p{Han}]]+[[%s]&&[^\p{Han}]]*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+" % (UPPER, LOWER, UPPER, LOWER)
RULES = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")],
    "qwen35": [C + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "gpt-4o": [CASED.replace("{0}", C + "?") + r"|\p{N}{1,3}" + TAIL],
    "tekken": [CASED.replace("{0}", "") + r"|\p{N}" + TAIL],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "seed-coder": [C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bailingmoe": [r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "bloom": [r" ?[^(\s|.,!?…。，、।۔،)]+"],
    "viking": [r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")],
    "kimi-k2": [K2.replace("C?", C + "?")],
}
TEXTS = [
    "", " ", "  ", "   a", "a   b  ", "a \n b", "a\n\n  b", "\r\n\r\nx", "a!\r\n\nb", "\t\tif x:\n\t\t\treturn\n",
    "it's I'LL they'Re don'T 'tis", "Hello World HELLO helloWorld HTTPServer ÉCOLE Été straße", "12345 6789 0", "x1y22z333",
    "½ ² ٣٤ Ⅷ", "日本語 テスト、です。한국어 中文字符123", "e\u0301 n\u0303o क्षि नमस्ते", "<|im_start|>", "a/b//c/\n/", "...!!!???", "$100+20=120 <a> ^~|`",
    "def f(x): return x**2 # comment", "http://a.b/c?d=e&f", "a\u00a0b\u3000c\u2003 d", "Привет, МИР! Ünïcödé", "🙂🙂 ok🙂", "_x __y__ -z- #tag @me",
    "Trailing  \n", "  \n  \n", "a.b.c a,b (c) [d] {e}", "…。，、|", "ǅ ǆ ʰa ªb", "ab  cd   ef    gh", "x\n", "\n", "'", "''s", "'S",
]


def cut(expressions, text):
    pieces = [text] if text else []
    for expression in expressions:
        compiled = regex.compile(expression, regex.V1)
        parts = []
        for piece in pieces:
            at = 0
            for m in compiled.finditer(piece):
                if m.start() > at:
                    parts.append(piece[at : m.start()])
                if m.end() > m.start():
                    parts.append(m.group())
                at = m.end()
            if at < len(piece):
                parts.append(piece[at:])
        pieces = parts
    return pieces


def main():
    source = random.Random(20261201)
    alphabet = "aB éÉ1２ \n\r\t'sTlLre.,!/_$<日か한e\u0301🙂"
    texts = TEXTS + ["".join(source.choice(alphabet) for _ in range(source.randrange(1, 24))) for _ in range(60)]
    rules = {name: [cut(expressions, text) for text in texts] for name, expressions in RULES.items()}
    out = pathlib.Path(__file__).with_name("pre_splits.json")
    out.write_text(json.dumps({"texts": texts, "rules": rules}, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
