// A chat with the server that sent this page. Text from the model is only ever text.
"use strict";

const at = (id) => document.getElementById(id);
let messages = [];
let running = null;

function headers() {
  const key = at("key").value;
  const base = { "content-type": "application/json" };
  return key ? { ...base, authorization: `Bearer ${key}` } : base;
}

// Changes the log and keeps its end in view, unless the reader has scrolled up.
function follow(change) {
  const log = at("log");
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 32;
  change();
  if (follows) log.scrollTop = log.scrollHeight;
}

function add(kind, text) {
  const div = document.createElement("div");
  div.className = kind;
  div.textContent = text;
  follow(() => at("log").append(div));
  return div;
}

// The objects of a stream of server-sent events, as they come.
async function* objects(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith("data: ") ? line.slice(6) : "";
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

async function reply(messages, turn, signal) {
  const system = at("system").value.trim();
  const request = {
    messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    stream: true,
    stream_options: { include_usage: true },
  };
  if (at("temperature").value !== "") request.temperature = Number(at("temperature").value);
  if (at("tokens").value !== "") request.max_tokens = Number(at("tokens").value);
  const start = performance.now();
  const response = await fetch("/v1/chat/completions", {
    method: "POST", headers: headers(), body: JSON.stringify(request), signal: signal,
  });
  if (!response.ok) throw new Error((await response.json()).error.message);
  for await (const object of objects(response)) {
    if (object.error) throw new Error(object.error.message);
    follow(() => { turn.textContent += object.choices[0]?.delta?.content ?? ""; });
    if (object.usage) {
      const seconds = (performance.now() - start) / 1000;
      const { prompt_tokens, completion_tokens } = object.usage;
      add("note", `${prompt_tokens} + ${completion_tokens} tokens, ${seconds.toFixed(1)} s`);
    }
  }
}

function busy(is) {
  at("send").hidden = is;
  at("stop").hidden = !is;
}

async function send(event) {
  event?.preventDefault();
  const text = at("text").value;
  if (running || at("send").disabled || !text.trim()) return;
  const own = new AbortController();
  const conversation = messages;
  running = own;
  busy(true);
  conversation.push({ role: "user", content: text });
  add("turn user", text);
  at("log").scrollTop = at("log").scrollHeight;
  at("text").value = "";
  const turn = add("turn assistant", "");
  try {
    await reply(conversation, turn, own.signal);
  } catch (error) {
    if (error.name !== "AbortError") add("turn error", error.message);
  }
  if (turn.textContent) {
    conversation.push({ role: "assistant", content: turn.textContent });
  } else {
    // Nothing came: the question is given back.
    conversation.pop();
    turn.remove();
    at("text").value ||= text;
  }
  running = null;
  busy(false);
  at("text").focus();
}

at("form").addEventListener("submit", send);
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
});
at("stop").addEventListener("click", () => running?.abort());
at("clear").addEventListener("click", () => {
  running?.abort();
  messages = [];
  at("log").replaceChildren();
});

// The model's name, and whether it can chat. The list needs the key, if there is one.
async function describe() {
  const response = await fetch("/v1/models", { headers: headers() });
  if (!response.ok) return;
  const [model] = (await response.json()).data;
  at("model").textContent = model.id;
  at("notice").textContent = model.chat_error ? `This model cannot chat: ${model.chat_error}.` : "";
  at("send").disabled = Boolean(model.chat_error);
}
at("key").addEventListener("change", describe);
describe();
