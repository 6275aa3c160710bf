"""The official client of OpenAI's API against a server: what it reads, streams and raises. Prints replies as JSON."""

import json
import sys

import openai

url, key, model = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)

assert [m.id for m in client.models.list()] == [model]
assert client.models.retrieve(model).owned_by == "halfbyte"

messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
chat = client.chat.completions.create(model=model, messages=messages, max_tokens=10, temperature=0)
choice = chat.choices[0]
assert (choice.message.role, choice.finish_reason) == ("assistant", "length"), choice
assert chat.usage.completion_tokens == 10 and chat.usage.total_tokens == chat.usage.prompt_tokens + 10, chat.usage

streamed, reasons, usage = "", [], None
for chunk in client.chat.completions.create(
    model=model, messages=messages, max_tokens=10, temperature=0, stream=True, stream_options={"include_usage": True}
):
    for part in chunk.choices:
        streamed += part.delta.content or ""
        reasons += [part.finish_reason] if part.finish_reason else []
    usage = chunk.usage or usage
assert reasons == ["length"] and usage.completion_tokens == 10, (reasons, usage)

text = client.completions.create(model=model, prompt="Once upon a time", max_tokens=10, temperature=0)
seeds = [
    client.completions.create(model=model, prompt="Once", max_tokens=10, seed=seed, temperature=1.0).choices[0].text
    for seed in (7, 7)
]
assert seeds[0] == seeds[1], seeds


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error.body["message"]
    raise AssertionError(f"expected {kind.__name__}")


errors = [
    raised(openai.NotFoundError, lambda: client.completions.create(model="gpt", prompt="A")),
    raised(openai.BadRequestError, lambda: client.completions.create(model=model, prompt="A", n=2)),
    raised(
        openai.AuthenticationError,
        lambda: openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list(),
    ),
]
print(
    json.dumps(
        {
            "chat": choice.message.content,
            "streamed": streamed,
            "text": text.choices[0].text,
            "errors": errors,
            "version": openai.__version__,
        }
    )
)
