// The chat page: a client of /v1/chat/completions like any other. The conversation is kept in this browser.
import { View, made, button } from "./view.js";
import { events, grown, requestBody } from "./wire.js";

const $ = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const SETTINGS = ["system", "think", "tools", ...NUMBERS];
const STORE = "braid.chat", STORED_MAX = 2e6;  // characters; browsers allow some 5e6 for all pages of a server
const SAID_MS = 8000;
const EXAMPLES = ["What is 17 + 25?", "Reverse PLANE.", "What is Braid?"];

let messages = [];  // {role: "user" | "assistant", content, reasoning?, calls?: [{id, name, arguments, result?}], note?}
let running = null;  // AbortController of the answer that is being written
const views = new WeakMap();  // of messages

// ---- what is kept ----------------------------------------------------------------------------------------------------

function save() {
  const settings = Object.fromEntries(SETTINGS.map((name) => [name, $(name).value]));
  const kept = messages.filter((m) => m.role === "user" || m.content || m.reasoning || m.calls);
  const texts = kept.map((m) => JSON.stringify(m));
  let size = texts.reduce((sum, text) => sum + text.length, 0), first = 0;
  for (let most = STORED_MAX; most > 1e4; most /= 2) {
    // The oldest go where there is no room; what is left begins with a question.
    while (first < kept.length && (size > most || (first > 0 && kept[first].role !== "user"))) size -= texts[first++].length;
    try {
      sessionStorage.setItem(STORE, $("key").value);  // gone with the tab
      return localStorage.setItem(STORE, `{"messages":[${texts.slice(first)}],"settings":${JSON.stringify(settings)}}`);
    } catch { /* full, or switched off: then the conversation lasts as long as the page */ }
  }
}

function restore() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    for (const name of SETTINGS) $(name).value = stored.settings?.[name] ?? "";
    $("key").value = sessionStorage.getItem(STORE) ?? "";
    messages = (stored.messages ?? []).filter((m) => typeof m.content === "string" && ["user", "assistant"].includes(m.role));
  } catch {
    messages = [];
  }
}

// ---- what is shown ---------------------------------------------------------------------------------------------------

// Screen readers hear the parts of an answer as they are complete; what was said goes, since the page shows it.
function say(text) {
  const line = made("p", "", text);
  $("status").append(line);
  setTimeout(() => line.remove(), SAID_MS);
}

function viewOf(m) {
  if (!views.has(m)) views.set(m, new View(m, { copy, edit, regenerate, result }));
  return views.get(m);
}

function show() {
  const articles = messages.map((m) => viewOf(m).article);
  for (const child of [...$("log").children]) if (!articles.includes(child)) child.remove();
  messages.forEach((m, at) => {
    if (articles[at].parentNode !== $("log")) $("log").append(articles[at]);
    const last = at === messages.length - 1;
    viewOf(m).update({ busy: running !== null && last, last });
  });
  if (messages.length) return;
  const hint = made("div", "hint");
  hint.append(made("p", "", "Ask something, for example"));
  hint.append(...EXAMPLES.map((text) => button(text, "Ask: " + text, () => ask(text))));
  $("log").append(hint);
}

const toEnd = () => ($("log").scrollTop = $("log").scrollHeight);
const atEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 80;

function complain(text) {
  $("log").querySelector(":scope > .wrong")?.remove();
  $("log").append(made("p", "note wrong", text));
  toEnd();
  say(text);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not at https or localhost
    const box = made("textarea", "hidden", text), before = document.activeElement;
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    before?.focus();
    if (!done) return say("The browser does not allow copying here");
  }
  say("Copied");
}

function edit(m) {
  if (running) return;
  viewOf(m).edit((text) => {
    messages.length = messages.indexOf(m);
    ask(text);
  });
}

// ---- asking ----------------------------------------------------------------------------------------------------------

function headers() {
  const key = $("key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: "Bearer " + key }) };
}

function settings() {
  const out = { system: $("system").value.trim(), think: $("think").value, numbers: {} };
  for (const name of NUMBERS) if ($(name).value.trim() !== "") out.numbers[name] = Number($(name).value);
  try {
    if ($("tools").value.trim()) out.tools = JSON.parse($("tools").value);
  } catch (error) {
    throw new Error("The tools are not JSON: " + error.message);
  }
  return out;
}

// Speed is that of generation where it lasted; pieces that arrive together would make it infinite.
function showSpeed(tokens, sent, first, usage) {
  const now = performance.now(), seconds = (now - (now - first > 200 ? first : sent)) / 1000;
  const parts = [`${tokens} tokens`, `${(tokens / seconds).toFixed(1)} tokens/s`];
  if (usage) parts.push(`prompt ${usage.prompt_tokens} tokens`, `${usage.prompt_tokens_details?.cached_tokens ?? 0} of them cached`);
  $("speed").textContent = parts.join(", ");
}

async function failure(response) {
  const text = await response.text();
  if (response.status === 401) openSettings(true), $("key").focus();
  try {
    return new Error(`${response.status}: ${JSON.parse(text).error.message}`);
  } catch {
    return new Error(`${response.status}: ${text.slice(0, 500)}`);
  }
}

async function fetchInto(answer, signal) {
  const sent = performance.now(), body = requestBody(messages.slice(0, -1), settings());
  const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  if (!response.ok) throw await failure(response);
  const view = viewOf(answer);
  let pieces = 0, usage = null, drawn = 0, first = 0, said = 0;
  const draw = (busy) => {
    const following = atEnd();
    view.update({ busy, last: true });
    if (following) toEnd();
    for (const blocks = view.settled(busy); said < blocks.length; ++said) say(blocks[said]);
    showSpeed(usage?.completion_tokens ?? pieces, sent, first, usage);
  };
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message ?? "the server reports an error");
    usage = event.usage ?? usage;
    const choice = event.choices?.[0];
    if (choice && grown(answer, choice.delta ?? {}) && ++pieces === 1) {
      first = performance.now();
      say(answer.reasoning ? "Thinking" : "Answering");
    }
    if (choice?.finish_reason === "length") answer.note = "Cut: no more tokens were allowed, or the context is full.";
    if (performance.now() - drawn < 40) continue;
    draw(true);
    drawn = performance.now();
  }
  draw(false);
}

async function respond() {
  const answer = { role: "assistant", content: "" };
  let wrong = "";
  $("log").querySelector(":scope > .wrong")?.remove();
  messages.push(answer);
  running = new AbortController();
  $("log").setAttribute("aria-busy", "true");
  $("send").hidden = true;
  $("stop").hidden = false;
  show();
  toEnd();
  if (matchMedia("(hover: hover)").matches) $("text").focus();  // not where it opens a keyboard on the screen
  const watch = setInterval(refresh, 3000);
  try {
    await fetchInto(answer, running.signal);
  } catch (error) {
    if (error.name === "AbortError") answer.note = "Stopped.";
    else wrong = error instanceof TypeError ? "The server cannot be reached, or the answer broke off." : error.message;
  }
  clearInterval(watch);
  running = null;
  // An answer that did not begin is not kept; its question can be asked again.
  if (messages.at(-1) === answer && !answer.content && !answer.reasoning && !answer.calls) messages.pop();
  $("log").removeAttribute("aria-busy");
  $("send").hidden = false;
  $("stop").hidden = true;
  show();
  if (wrong) complain(wrong);
  else if (answer.note) say(answer.note);
  save();
  refresh();
}

function ask(text) {
  if (running || !text.trim()) return;
  messages.push({ role: "user", content: text.trim() });
  save();
  respond();
}

function regenerate() {
  if (running) return;
  if (messages.at(-1)?.role === "assistant") messages.pop();
  if (messages.length) respond();
}

// The result of a call, entered here; with the last one the model goes on.
function result(m, call, text) {
  if (running || m !== messages.at(-1)) return;
  call.result = text;
  if (m.calls.every((c) => c.result !== undefined)) respond();
  else show();
}

// ---- the server ------------------------------------------------------------------------------------------------------

async function refresh() {
  try {
    const models = await fetch("v1/models", { headers: headers() });
    if (models.status === 503) {
      $("server").textContent = "the model is being loaded";
      return setTimeout(refresh, 1000);
    }
    if (models.ok) $("model").textContent = (await models.json()).data[0].id;
    const answer = await fetch("state", { headers: headers() });
    if (!answer.ok) return;
    const { tokens, memory } = await answer.json(), parts = [], bytes = memory.resident_bytes;
    if (tokens.prompt > 0) parts.push(`${Math.round((100 * tokens.cached) / tokens.prompt)}% of prompts cached`);
    if (bytes > 0) parts.push(bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(0)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`);
    $("server").textContent = parts.join(", ");
  } catch { /* not there: asking will say so */ }
}

function openSettings(open) {
  $("settings").hidden = !open;
  $("toggle").setAttribute("aria-expanded", String(open));
}

function grow() {
  $("text").style.height = "auto";
  $("text").style.height = $("text").scrollHeight + 2 + "px";
}

function stop() {
  running?.abort();
  $("text").focus();
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
document.addEventListener("keydown", (key) => key.key === "Escape" && running && stop());
$("stop").addEventListener("click", stop);
$("toggle").addEventListener("click", () => openSettings($("settings").hidden));
$("log").addEventListener("click", (event) => {
  if (event.target.matches(".code .copy")) copy(event.target.closest(".code").querySelector("pre").textContent);
});
$("new").addEventListener("click", () => {
  running?.abort();
  messages = [];
  save();
  show();
  $("text").focus();
});
for (const name of [...SETTINGS, "key"]) $(name).addEventListener("change", () => (save(), name === "key" && refresh()));
window.addEventListener("pagehide", () => running && save());

restore();
show();
toEnd();
refresh();
