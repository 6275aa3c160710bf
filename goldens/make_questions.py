"""Replies to 40 short questions in float64 arithmetic, from SmolLM2's Q4_1 file.

    pip install gguf==0.19.0 numpy jinja2
    python make_questions.py SmolLM2-135M-Instruct.Q4_1.gguf TOKENIZE

TOKENIZE is a command that reads a text on stdin and writes its token ids, control tokens included, such as
"halfbyte tokenize --special --model SmolLM2-135M-Instruct.Q4_1.gguf".

Writes questions.json beside itself: for each question the ids of the prompt (the model's own template), the greedy reply of
at most 30 tokens, without the token that ends it, and for each of its steps how far the best logit is above the next.
"""

import json
import pathlib
import shlex
import subprocess
import sys

import gguf
import jinja2.sandbox
import numpy as np

HERE = pathlib.Path(__file__).parent
LIMIT = 30
QUESTIONS = """\
What is the capital of France?
What is the capital of Japan?
What is the largest planet in the solar system?
How many days are in a week?
What color is the sky on a clear day?
Who wrote Romeo and Juliet?
What is two plus two?
What is the boiling point of water in Celsius?
Name three primary colors.
What language is spoken in Brazil?
What is the opposite of hot?
How many legs does a spider have?
What do bees make?
What is the chemical symbol for gold?
Which ocean is the largest?
What is the square root of 81?
Who painted the Mona Lisa?
What is the fastest land animal?
In which continent is Egypt?
What gas do plants absorb from the air?
How many minutes are in an hour?
What is the freezing point of water in Fahrenheit?
What is the currency of the United Kingdom?
What is the tallest mountain in the world?
Give me a synonym for happy.
What is the past tense of go?
How many continents are there?
What is the main ingredient of bread?
Which planet is known as the Red Planet?
What is the plural of mouse?
Write one sentence about the sea.
What is a noun?
What is photosynthesis?
What does DNA stand for?
How do you say hello in Spanish?
What is the longest river in Africa?
Who was the first president of the United States?
What is the speed of light?
Why do leaves change color in autumn?
What is ten times ten?"""


class Llama:
    """The forward pass of a llama model, a token or a prompt at a time."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        field = lambda name: reader.fields[name].contents()
        self.layers = field("llama.block_count")
        self.heads, self.kv_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
        self.width = field("llama.embedding_length")
        self.base, self.eps = field("llama.rope.freq_base"), field("llama.attention.layer_norm_rms_epsilon")
        self.template, self.end = field("tokenizer.chat_template"), field("tokenizer.ggml.eos_token_id")
        self.weights = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        self.cache = None

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weights[name]

    def rope(self, x, positions):
        size = x.shape[-1]
        angles = positions[:, None] * self.base ** (-np.arange(0, size, 2) / size)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return out

    def feed(self, ids, first):
        """The logits after the last of `ids`, which follow `first` tokens."""
        n, size = len(ids), self.width // self.heads
        if first == 0:
            self.cache = [(np.empty((0, self.kv_heads, size)),) * 2 for _ in range(self.layers)]
        positions = np.arange(first, first + n)
        mask = np.where(np.arange(first + n)[None] > positions[:, None], -np.inf, 0.0)
        x = self.weights["token_embd.weight"][ids]
        for layer in range(self.layers):
            times = lambda x, name: x @ self.weights[f"blk.{layer}.{name}.weight"].T
            h = self.norm(x, f"blk.{layer}.attn_norm.weight")
            q = self.rope(times(h, "attn_q").reshape(n, self.heads, size), positions)
            k = self.rope(times(h, "attn_k").reshape(n, self.kv_heads, size), positions)
            v = times(h, "attn_v").reshape(n, self.kv_heads, size)
            k, v = (np.concatenate(pair) for pair in zip(self.cache[layer], (k, v)))
            self.cache[layer] = (k, v)
            k, v = (np.repeat(side, self.heads // self.kv_heads, 1) for side in (k, v))
            scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(size) + mask
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            x = x + times(np.einsum("hts,shd->thd", scores, v).reshape(n, -1), "attn_output")
            h = self.norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = times(h, "ffn_gate")
            x = x + times(gate / (1 + np.exp(-gate)) * times(h, "ffn_up"), "ffn_down")
        return self.norm(x[-1], "output_norm.weight") @ self.weights["token_embd.weight"].T


def main():
    model = Llama(sys.argv[1])
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(model.template)
    cases = []
    for question in QUESTIONS.splitlines():
        text = template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True)
        words = subprocess.run(shlex.split(sys.argv[2]), input=text.encode(), capture_output=True, check=True)
        prompt = [int(word) for word in words.stdout.split()]
        reply, gaps, logits = [], [], model.feed(prompt, 0)
        while len(reply) < LIMIT:
            best = int(logits.argmax())
            if best == model.end:
                break
            top = np.sort(logits)[-2:]
            reply.append(best)
            gaps.append(round(float(top[1] - top[0]), 6))
            logits = model.feed([best], len(prompt) + len(reply) - 1)
        cases.append({"question": question, "ids": prompt, "reply": reply, "gaps": gaps})
        print(question, len(reply), min(gaps, default=0), flush=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "questions.json").write_text(f"[\n{lines}\n]\n")


main()
