// A message on the page. Its nodes stay where they are while the answer grows: focus, selection and folding survive.
import { render } from "./markdown.js";

export function made(name, className, text = "") {
  const e = document.createElement(name);
  if (className) e.className = className;
  e.textContent = text;
  return e;
}

export function button(label, title, act) {
  const b = made("button", "", label);
  b.type = "button";
  b.setAttribute("aria-label", title);
  b.addEventListener("click", act);
  return b;
}

const sends = (key) => key.key === "Enter" && !key.shiftKey && !key.isComposing;

export class View {
  // acts: copy(text), edit(m), regenerate(), result(m, call, text)
  constructor(m, acts) {
    this.m = m;
    this.acts = acts;
    this.article = made("article", m.role);
    this.thoughts = document.createTextNode("");
    this.summary = made("summary");
    this.details = document.createElement("details");
    const pre = made("pre");
    pre.append(this.thoughts);
    this.details.append(this.summary, pre);
    this.body = made("div", "body");
    this.calls = [];
    this.callBox = made("div");
    this.note = made("p", "note");
    this.tools = made("div", "tools");
    this.copyButton = button("Copy", "Copy this message", () => acts.copy(m.content));
    this.editButton = button("Edit", "Edit this message and ask again", () => acts.edit(m));
    this.againButton = button("Again", "Answer again", () => acts.regenerate());
    this.tools.append(this.copyButton, ...(m.role === "user" ? [this.editButton] : []), this.againButton);
    this.parts = [made("h2", "who", m.role === "user" ? "You" : "Model"), this.body, this.tools];
    if (m.role === "assistant") this.parts.splice(1, 1, this.details, this.body, this.callBox, this.note);
    this.article.append(...this.parts);
  }

  update({ busy, last }) {
    const { m } = this, thinking = m.reasoning ?? "";
    this.details.hidden = !thinking;
    const summary = busy && !m.content ? "Thinking…" : "Thinking";
    if (this.summary.textContent !== summary) this.summary.textContent = summary;
    if (thinking.length > this.thoughts.length) this.thoughts.appendData(thinking.slice(this.thoughts.length));
    if (m.role === "user") this.body.textContent = m.content;
    else render(this.body, m.content);
    this.body.classList.toggle("busy", busy);
    this.body.hidden = !busy && !m.content;
    (m.calls ?? []).forEach((call, at) => this.call(call, at, !busy && last));
    this.note.textContent = m.note ?? "";
    this.note.hidden = busy || !m.note;
    this.tools.hidden = busy;
    this.copyButton.hidden = !m.content;
    this.againButton.hidden = !last;
  }

  call(call, at, open) {
    if (!this.calls[at]) {
      const box = made("section", "call"), name = made("b"), given = made("pre"), result = made("pre"), answer = made("form");
      box.setAttribute("aria-label", "Tool call");
      const input = made("input"), send = made("button", "", "Send result");
      input.setAttribute("aria-label", "Result of the call");
      input.placeholder = "Result of the call";
      answer.append(input, send);
      answer.addEventListener("submit", (event) => {
        event.preventDefault();
        this.acts.result(this.m, call, input.value);
      });
      const head = made("p", "", "Calls ");
      head.append(name);
      box.append(head, given, result, answer);
      this.calls[at] = { name, given, result, answer };
      this.callBox.append(box);
    }
    const { name, given, result, answer } = this.calls[at];
    name.textContent = call.name;
    given.textContent = call.arguments;
    result.hidden = call.result === undefined;
    result.textContent = "→ " + (call.result ?? "");
    answer.hidden = !open || call.result !== undefined;
  }

  // The texts of the blocks that will not change any more.
  settled(busy) {
    const blocks = [...this.body.children].map((block) => block.textContent);
    return busy ? blocks.slice(0, -1) : blocks;
  }

  edit(send) {
    const box = made("textarea", "edit"), tools = made("div", "tools");
    box.value = this.m.content;
    box.setAttribute("aria-label", "Edit the message");
    const leave = () => {
      this.article.replaceChildren(...this.parts);
      this.editButton.focus();
    };
    const done = () => box.value.trim() && send(box.value);
    tools.append(button("Send", "Send the edited message", done), button("Cancel", "Leave the message as it was", leave));
    box.addEventListener("keydown", (key) => {
      if (sends(key)) key.preventDefault(), done();
      if (key.key === "Escape") leave();
    });
    this.article.replaceChildren(this.parts[0], box, tools);
    box.focus();
  }
}
