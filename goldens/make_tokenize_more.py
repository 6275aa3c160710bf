"""What llama.cpp makes of strings that are easy to get wrong.

    pip install gguf==0.19.0 llama-cpp-python==0.3.36 sentencepiece==0.2.3 protobuf
    python make_tokenize_more.py SmolLM2-135M-Instruct.Q4_1.gguf

Writes two files beside itself:

smollm2_tokenize_more.json  ids under each pre-tokenizer, all with SmolLM2's vocabulary: the file's own
                            (smollm), and the same file relabelled as gpt-2, llama-bpe and qwen2. For
                            `extended`, six user-defined tokens and one control token are appended.
spm_tokenize.json           a SentencePiece vocabulary of 640 tokens trained on eval_text.txt, as a
                            TokenizerSpec, the bytes of each token, and ids; `tied` has coarse scores, many of
                            them equal, and no space in front.
"""

import json
import pathlib
import random
import sys
import tempfile

import gguf
import llama_cpp
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

HERE = pathlib.Path(__file__).parent
SEED = 20250211

NOTABLE = [
    "it's IT'S It'S we'LL o'clock 'tis 's 't '", "a'\u017fx K\u212a'RE", "a  b   c    d", "a \n b\n\n\nc \r\n\r\nd",
    " \t\v\f\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000x", "x \u00a0 y", "tail \n ", "\r", "\r\n", "\n ", " ",
    "12 345 6789 0123456789", "x1y22z333", "\u00bd\u00b2\u2167\u0663\u096a\u4e09\U0001d7d8", "v1.2.3-rc4+5", "(((]]]}}}", "!?\n\n!\r\n x",
    "_under_score__", "\u65e5\u672c\u8a9e\u3067\u3059\u3002\u4e2d\u6587\uff0c\u5b57", "\ud55c\uad6d\uc5b4 \uc870\uc0ac", "\u1112\u1161\u11ab",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "e\u0301\u0301\u0308 n\u0303", "\u0915\u094d\u0937\u093f", "\u202eabc\u202c", "\ufeffbom",
    "a\u200bb\u200cc\u200dd", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7\U0001f1e9", "\U0001f44d\U0001f3fd\ufe0f",
    "\x00\x01\x02\x03\x04\x05\x06\x07", "a\x04b\x13c\x14\x16\x1d", "a\x04 in the", "\x7f\x80\x9f", "\uffff\ufffe\ufffd",
    "\U000e0041\U0010ffff", "\U000f0000 \ue000", "\U00040000\U00080000", "\u0120\u010a\u0100", "\u2581a \u2581",
    "<|im_start|>", "<|im_end|><|im_end|>", "x<|im_end|> y", "<|im_<|im_end|>end|>", "<<|im_end|>>", "<|im_end|", "<|endoftext|>\n",
    "<think>\nx</think>", "the  \n  \ncat", "doing the cat", "<|x|><|im_x", "<s></s><unk><pad>", "<0x0A><0x41>", "</s>",
    "https://a.b/c?d=e&f=%20#g", "if (x == 0) {\n\t\treturn;\n}", "\\u0041\\n", "\"quoted\" \u201cquoted\u201d", "0" * 50, "a" * 70, " " * 70 + "x",
    "\n" * 40 + "x", "\u3042" * 30, "'" * 9, "-" * 40, "<|" * 12, "\u0301" * 12, "Hello", " Hello", "  Hello", "Hello ", "",
]


def random_strings(rng, specials, n):
    pools = [
        "abcdefghijklmnopqrstuvwxyz ", "ABC xyz'stredvm LL ", " \t\n\r\u00a0\u3000\u2028\x0b", "0123456789 \u00bd\u00b2\u0663",
        "!?.,;:-_()[]{}<>|/\\'\"`~@#$%^&*+=", "\u00e9\u00e8\u00fc\u00f1\u00df\u0142", "\u65e5\u672c\u8a9e\u4e2d\u6587\ud55c\uad6d\uc5b4", "\u03b1\u03b2\u0434\u0435\u0436",
        "\U0001f600\U0001f469\u200d\U0001f1eb\ufe0f", "\u0301\u0308\u200b\ufeff", "\x00\x01\x04\x7f",
    ]
    for _ in range(n):
        out = []
        for _ in range(rng.randrange(2, 9)):
            if rng.random() < 0.2:
                out.append(rng.choice(specials))
            else:
                pool = rng.choice(pools)
                out.append("".join(rng.choice(pool) for _ in range(rng.randrange(1, 7))))
        yield "".join(out)


def write_gguf(path, spec):
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(512)
    w.add_embedding_length(64)
    w.add_block_count(1)
    w.add_feed_forward_length(64)
    w.add_head_count(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model(spec["model"])
    if "pre" in spec:
        w.add_tokenizer_pre(spec["pre"])
    w.add_token_list(spec["tokens"])
    w.add_token_types(spec["token_types"])
    if "scores" in spec:
        w.add_token_scores(spec["scores"])
    if "merges" in spec:
        w.add_token_merges(spec["merges"])
    if "add_space_prefix" in spec:
        w.add_add_space_prefix(spec["add_space_prefix"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(False)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


class Peer:
    def __init__(self, spec):
        self.dir = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.dir.name) / "vocab.gguf"
        write_gguf(path, spec)
        self.llama = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)

    def ids(self, text, special):
        return self.llama.tokenize(text.encode(), add_bos=False, special=special)

    def piece(self, token):
        return self.llama.detokenize([token], special=True)

    def end_of_generation(self):
        vocab = self.llama._model.vocab
        return [i for i in range(self.llama.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocab, i)]

    def cases(self, texts):
        return [[t, special, self.ids(t, special)] for t in texts for special in (False, True) if special is False or "<" in t]


def fnv1a(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for b in i.to_bytes(4, "little"):
            h = (h ^ b) * 0x100000001B3 % 2**64
    return f"{h:016x}"


def dump(name, data):
    """One case a line."""
    with open(HERE / name, "w", encoding="ascii", newline="\n") as f:
        text = json.dumps(data, separators=(",", ":"))
        f.write(text.replace('],["', '],\n["').replace('"},{"', '"},\n{"') + "\n")


def smollm2(model):
    fields = gguf.GGUFReader(model).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    spec = {"model": "gpt2", "tokens": get("tokens"), "token_types": get("token_type"), "merges": get("merges")}
    extra = {"<think>": 4, "</think>": 4, "  \n": 4, "ing the": 4, "e cat": 4, "<|x|>": 4, "<|im_": 3}
    extended = dict(spec, tokens=spec["tokens"] + list(extra), token_types=spec["token_types"] + list(extra.values()))
    rng = random.Random(SEED)
    eval_text = (HERE / "eval_text.txt").read_text(encoding="utf-8")
    out = []
    for name, pre, base in [("smollm", "smollm", spec), ("gpt-2", "gpt-2", spec), ("llama-bpe", "llama-bpe", spec),
                            ("qwen2", "qwen2", spec), ("extended", "smollm", extended)]:
        peer = Peer(dict(base, pre=pre))
        texts = NOTABLE + list(random_strings(rng, ["<|im_start|>", "<|im_end|>", "<think>", "<|im_"], 40))
        ids = peer.ids(eval_text, False)
        out.append({"name": name, "pre": pre, "eval_text": {"n": len(ids), "fnv1a": fnv1a(ids)},
                    "end_of_generation": peer.end_of_generation(), "cases": peer.cases(texts)})
    dump("smollm2_tokenize_more.json", {"extra": list(extra.items()), "vocabularies": out})


def sentencepiece_vocabulary():
    with tempfile.TemporaryDirectory() as d:
        prefix = pathlib.Path(d) / "m"
        sample = "\u65e5\u672c\u8a9e \u041f\u0440\u0438\u0432\u0435\u0442 na\u00efve 1234\n" * 10
        (pathlib.Path(d) / "text").write_text((HERE / "eval_text.txt").read_text(encoding="utf-8")[:100_000] + sample, encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=pathlib.Path(d) / "text", model_prefix=prefix, vocab_size=640, model_type="bpe", byte_fallback=True, character_coverage=0.998,
            split_digits=True, allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, normalization_rule_name="identity",
            user_defined_symbols=["<tag>", "\n\n"], control_symbols=["<|end|>"], minloglevel=2)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(prefix.with_suffix(".model").read_bytes())
    return {"model": "llama", "tokens": [p.piece for p in proto.pieces], "scores": [p.score for p in proto.pieces],
            "token_types": [p.type for p in proto.pieces]}


def spm():
    spec = sentencepiece_vocabulary()
    peer = Peer(spec)
    rng = random.Random(SEED)
    eval_text = (HERE / "eval_text.txt").read_text(encoding="utf-8")
    words = eval_text.split(" ")
    texts = NOTABLE + list(random_strings(rng, ["<|end|>", "<tag>", "\n\n", "</s>"], 40))
    texts += [" ".join(words[i:i + 12]) for i in rng.sample(range(len(words) - 12), 20)]
    ids = peer.ids(eval_text, False)
    tied = dict(spec, scores=[-float(int(-s) // 40) for s in spec["scores"]], add_space_prefix=False)
    dump("spm_tokenize.json", {
        "spec": spec, "pieces": [peer.piece(i).hex() for i in range(len(spec["tokens"]))],
        "end_of_generation": peer.end_of_generation(),
        "eval_text": {"n": len(ids), "fnv1a": fnv1a(ids)}, "cases": peer.cases(texts),
        "tied_scores": tied["scores"], "tied_cases": Peer(tied).cases(texts),
    })


if __name__ == "__main__":
    smollm2(sys.argv[1])
    spm()
