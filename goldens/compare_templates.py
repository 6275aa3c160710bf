"""Compares chat templates as halfbyte renders them with what Jinja2 writes, set up as transformers sets it up.

    python goldens/compare_templates.py RENDER [TEMPLATE_OR_FOLDER ...]

RENDER is the program `target/debug/examples/render_chats`. Each template (`*.jinja`, or the `chat_template` of a
`tokenizer_config.json`) is rendered with several conversations and arguments. Without templates, the small cases below are
rendered by Jinja2 alone and written to `goldens/chat_templates.json`. Needs the package `jinja2`, 3.1.6 when the file was
made.
"""

import datetime
import json
import pathlib
import subprocess
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime.fromtimestamp(1709208000, datetime.timezone.utc)


class Generation(Extension):
    """`{% generation %}`: a block that writes what is in it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(case):
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    try:
        variables = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None} | case.get("arguments", {})
        return environment.from_string(case["template"]).render(
            messages=case["messages"], add_generation_prompt=case["add_generation_prompt"], **variables
        )
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def conversations():
    turn = lambda role, content: {"role": role, "content": content}
    yield [turn("user", "Hi")], {}
    yield [turn("system", "  Be brief. "), turn("user", "Hello\n there"), turn("assistant", " I'm here "), turn("user", "é日😀")], {}
    yield [turn("user", "a"), turn("assistant", "<think>\nhm\n</think>\n\nYes"), turn("user", "b")], {"enable_thinking": False}
    yield [turn("user", "a"), turn("assistant", "b")], {"enable_thinking": True, "reasoning_effort": "high"}
    yield [turn("system", ""), turn("user", '"q" \\ <b>')], {"documents": [{"title": "T", "text": "some {text}"}], "reasoning_effort": "low"}
    yield [turn("user", "weather?"), turn("assistant", "call"), turn("tool", '{"t": 1.5}')], {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "d \u00e9",
                    "parameters": {
                        "type": "object",
                        "properties": {"b": {"type": "string", "description": "x", "enum": ["p", "q"]}, "a": {"type": "integer", "default": 1e-7}},
                        "required": ["b"],
                    },
                },
            }
        ]
    }


SMALL = pathlib.Path(__file__).with_name("chat_templates.txt")


def templates(paths):
    for path in map(pathlib.Path, paths):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix == ".jinja":
                yield file.name, file.read_bytes().decode()
            elif file.name == "tokenizer_config.json":
                template = json.loads(file.read_bytes()).get("chat_template")
                for one in template if isinstance(template, list) else [{"template": template}] if template else []:
                    yield f"{file.parent.name}/{file.name}", one["template"]


def main():
    names, cases = [], []
    if len(sys.argv) > 2:
        for name, template in templates(sys.argv[2:]):
            for i, (messages, arguments) in enumerate(conversations()):
                for go in (True, False):
                    names.append(f"{name} {i} {go}")
                    cases.append({"template": template, "messages": messages, "arguments": arguments, "add_generation_prompt": go})
    else:
        for i, block in enumerate(SMALL.read_text().split("\n====\n")):
            template, _, arguments = block.rstrip("\n").partition("\n----\n")
            names.append(template)
            cases.append({
                "template": template.replace("\u240d", "\r"),
                "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a,b c"}],
                "arguments": json.loads(arguments or "{}"),
                "add_generation_prompt": True,
            })
    expected = [render(case) for case in cases]
    if len(sys.argv) == 2:
        for case, text in zip(cases, expected):
            case["arguments_json"] = json.dumps(case["arguments"])
            case["expected"] = text
        SMALL.with_suffix(".json").write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")
    got = json.loads(subprocess.run([sys.argv[1]], input=json.dumps(cases), capture_output=True, text=True, check=True).stdout)
    wrong = refused = 0
    for name, e, g in zip(names, expected, got):
        if isinstance(e, dict) and isinstance(g, dict):
            refused += 1
        elif e != g:
            wrong += 1
            print(f"{name}\n  Jinja2:   {e!r}\n  halfbyte: {g!r}")
    print(f"{len(cases)} cases: {wrong} differ, {refused} are errors in both")


if __name__ == "__main__":
    main()
