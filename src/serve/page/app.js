// The chat page: a client of /v1/chat/completions like any other. The conversation is kept in this browser.
import { markdown } from "./markdown.js";

const $ = (id) => document.getElementById(id);
const SETTINGS = ["system", "think", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "key"];
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const STORE = "braid.chat", STORED_MAX = 2e6;  // characters
const EXAMPLES = ["What is 17 + 25?", "Reverse PLANE.", "What is Braid?"];

let messages = [];  // {role, content, reasoning?, calls?, note?, wrong?}
let running = null;  // AbortController of the answer that is being written

// ---- what is kept ----------------------------------------------------------------------------------------------------

function save() {
  const settings = Object.fromEntries(SETTINGS.map((name) => [name, $(name).value]));
  for (let first = 0; first <= messages.length; ++first) {  // the oldest go where there is no room
    const text = JSON.stringify({ messages: messages.slice(first), settings });
    if (text.length > STORED_MAX) continue;
    try {
      return localStorage.setItem(STORE, text);
    } catch { /* full, or switched off: the conversation lasts as long as the page */ }
  }
}

function restore() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    messages = (stored.messages ?? []).filter((m) => typeof m.content === "string" && ["user", "assistant"].includes(m.role));
    for (const name of SETTINGS) $(name).value = stored.settings?.[name] ?? "";
  } catch {
    messages = [];
  }
}

// ---- what is shown ---------------------------------------------------------------------------------------------------

function button(label, title, act) {
  const b = document.createElement("button");
  b.type = "button";
  b.textContent = label;
  b.setAttribute("aria-label", title);
  b.addEventListener("click", act);
  return b;
}

function made(name, className, text = "") {
  const e = document.createElement(name);
  e.className = className;
  e.textContent = text;
  return e;
}

function fill(article, m, busy) {
  const open = article.querySelector("details")?.open ?? false;
  article.replaceChildren(made("div", "who", m.role === "user" ? "You" : "Model"));
  if (m.reasoning) {
    const details = document.createElement("details");
    details.open = open;
    details.append(made("summary", "", busy && !m.content ? "Thinking…" : "Thinking"), made("pre", "", m.reasoning));
    article.append(details);
  }
  const body = made("div", "body" + (busy ? " busy" : ""));
  if (m.role === "user") body.textContent = m.content;
  else body.append(...markdown(m.content));
  article.append(body);
  for (const call of m.calls ?? []) {
    const box = made("div", "call");
    box.append("Calls ", made("b", "", call.name), made("pre", "", call.arguments));
    article.append(box);
  }
  if (m.note) article.append(made("p", m.wrong ? "note wrong" : "note", m.note));
  if (busy) return;
  const tools = made("div", "tools"), at = messages.indexOf(m);
  tools.append(button("Copy", "Copy this message", () => copy(m.content)));
  if (m.role === "user") tools.append(button("Edit", "Edit this message and ask again", () => edit(article, at)));
  if (at === messages.length - 1) tools.append(button("Again", "Answer again", () => regenerate()));
  article.append(tools);
}

function show() {
  $("log").replaceChildren();
  for (const m of messages) {
    const article = made("article", m.role);
    fill(article, m, false);
    $("log").append(article);
  }
  if (!messages.length) {
    const hint = made("div", "hint");
    hint.append(made("p", "", "Ask something, for example:"));
    hint.append(...EXAMPLES.map((text) => button(text, "Ask: " + text, () => ask(text))));
    $("log").append(hint);
  }
  toEnd();
}

const toEnd = () => ($("log").scrollTop = $("log").scrollHeight);

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    say("The browser does not allow copying here");
  }
}

// For screen readers, and the end of the page.
function say(text) {
  $("status").textContent = text;
}

function edit(article, at) {
  if (running) return;
  const box = made("textarea", "edit");
  box.value = messages[at].content;
  box.setAttribute("aria-label", "Edit the message");
  const done = () => {
    messages.length = at;
    ask(box.value);
  };
  const tools = made("div", "tools");
  tools.append(button("Send", "Send the edited message", done), button("Cancel", "Leave the message as it was", show));
  box.addEventListener("keydown", (key) => {
    if (key.key === "Enter" && !key.shiftKey && !key.isComposing) key.preventDefault(), done();
    if (key.key === "Escape") show();
  });
  article.replaceChildren(box, tools);
  box.focus();
}

// ---- asking ----------------------------------------------------------------------------------------------------------

function headers() {
  const key = $("key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: "Bearer " + key }) };
}

function request() {
  const system = $("system").value.trim(), think = $("think").value;
  const body = {
    stream: true,
    stream_options: { include_usage: true },
    messages: messages
      .filter((m) => m.role === "user" || m.content || m.reasoning)
      .map((m) => ({ role: m.role, content: m.content, ...(m.reasoning && { reasoning_content: m.reasoning }) })),
  };
  if (system) body.messages.unshift({ role: "system", content: system });
  if (think) body.chat_template_kwargs = { enable_thinking: think === "on" };
  for (const name of NUMBERS) if ($(name).value.trim() !== "") body[name] = Number($(name).value);
  return body;
}

// The objects of a stream of server-sent events.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const lines = held.split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

function take(answer, delta) {
  answer.content += delta.content ?? "";
  answer.reasoning = (answer.reasoning ?? "") + (delta.reasoning_content ?? delta.reasoning ?? "");
  for (const part of delta.tool_calls ?? []) {
    answer.calls ??= [];
    const call = (answer.calls[part.index ?? 0] ??= { name: "", arguments: "" });
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
}

function showSpeed(pieces, seconds, usage) {
  const tokens = usage?.completion_tokens ?? pieces, cached = usage?.prompt_tokens_details?.cached_tokens;
  const speed = seconds > 0 ? (tokens / seconds).toFixed(1) + " tokens/s" : "";
  const prompt = usage ? `, prompt ${usage.prompt_tokens} tokens` + (cached === undefined ? "" : `, ${cached} of them cached`) : "";
  $("speed").textContent = `${tokens} tokens${speed && ", " + speed}${prompt}`;
}

async function answerInto(answer, article, signal) {
  const sent = performance.now();  // speeds are end to end: pieces may arrive together
  const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(request()), signal });
  if (!response.ok) {
    const text = await response.text();
    let says = text;
    try {
      says = JSON.parse(text).error.message;
    } catch { /* not one of ours */ }
    if (response.status === 401) openSettings(), $("key").focus();
    throw new Error(`${response.status}: ${says}`);
  }
  let pieces = 0, usage = null, drawn = 0;
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message ?? "the server reports an error");
    usage = event.usage ?? usage;
    const choice = event.choices?.[0];
    if (choice?.delta) take(answer, choice.delta);
    if (choice?.finish_reason === "length") answer.note = "Cut: no more tokens were allowed, or the context is full.";
    const now = performance.now();
    if (choice?.delta?.content || choice?.delta?.reasoning_content || choice?.delta?.reasoning) ++pieces;
    if (now - drawn < 30) continue;
    drawn = now;
    const following = $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 80;
    fill(article, answer, true);
    if (following) toEnd();
    showSpeed(pieces, (now - sent) / 1000, null);
  }
  showSpeed(pieces, (performance.now() - sent) / 1000, usage);
}

async function respond() {
  const answer = { role: "assistant", content: "" }, article = made("article", "assistant");
  show();
  messages.push(answer);
  $("log").append(article);
  fill(article, answer, true);
  toEnd();
  running = new AbortController();
  $("log").setAttribute("aria-busy", "true");
  $("send").hidden = true;
  $("stop").hidden = false;
  try {
    await answerInto(answer, article, running.signal);
    say("The answer is complete");
  } catch (error) {
    answer.wrong = error.name !== "AbortError";
    answer.note = answer.wrong ? (error instanceof TypeError ? "The server cannot be reached." : error.message) : "Stopped.";
    say(answer.note);
  }
  running = null;
  // An answer that did not begin is not kept; its question can be asked again.
  if (answer.wrong && !answer.content && !answer.reasoning) {
    messages.pop();
    show();
    $("log").append(made("p", "note wrong", answer.note));
    toEnd();
  } else {
    show();
  }
  $("log").removeAttribute("aria-busy");
  $("send").hidden = false;
  $("stop").hidden = true;
  save();
  refresh();
}

function ask(text) {
  if (running || !text.trim()) return;
  messages.push({ role: "user", content: text.trim() });
  save();
  $("text").focus();
  respond();
}

function regenerate() {
  if (running) return;
  if (messages.at(-1)?.role === "assistant") messages.pop();
  if (messages.length) respond();
}

// ---- the server ------------------------------------------------------------------------------------------------------

async function refresh() {
  try {
    const models = await fetch("v1/models", { headers: headers() });
    if (models.ok) $("model").textContent = (await models.json()).data[0].id;
    const metrics = await fetch("metrics", { headers: headers() });
    if (!metrics.ok) return;
    const text = await metrics.text(), parts = [];
    const value = (name) => Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1] ?? NaN);
    const prompt = value("vllm:prompt_tokens_total"), cached = value("braid:cached_tokens_total"), bytes = value("process_resident_memory_bytes");
    if (prompt + cached > 0) parts.push(`${Math.round((100 * cached) / (prompt + cached))}% of prompt tokens from the cache`);
    if (bytes > 0) parts.push(bytes < 1e9 ? `${(bytes / 2 ** 20).toFixed(0)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`);
    $("server").textContent = parts.join(" · ");
  } catch { /* not there: asking will say so */ }
}

function openSettings(open = true) {
  $("settings").hidden = !open;
  $("toggle").setAttribute("aria-expanded", String(open));
}

function grow() {
  $("text").style.height = "auto";
  $("text").style.height = $("text").scrollHeight + 2 + "px";
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) return;
  const text = $("text").value;
  $("text").value = "";
  grow();
  ask(text);
});
$("text").addEventListener("keydown", (key) => {
  if (key.key === "Enter" && !key.shiftKey && !key.isComposing) key.preventDefault(), $("composer").requestSubmit();
});
$("text").addEventListener("input", grow);
document.addEventListener("keydown", (key) => key.key === "Escape" && running?.abort());
$("stop").addEventListener("click", () => running?.abort());
$("toggle").addEventListener("click", () => openSettings($("settings").hidden));
$("new").addEventListener("click", () => {
  running?.abort();
  messages = [];
  save();
  show();
  $("text").focus();
});
for (const name of SETTINGS) $(name).addEventListener("change", () => (save(), name === "key" && refresh()));

restore();
show();
refresh();
