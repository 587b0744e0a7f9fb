// Markdown of answers as DOM nodes. Text of the model only ever becomes the text of a node: no HTML of its own is
// interpreted, and links lead to http and https alone. Time is linear in the text, and nesting is limited, since a model
// may write anything. What does not close stays text.

const DEPTH_MAX = 8, OPEN_MAX = 16;

// children: strings and nodes, of which there may be too many for the arguments of a call.
function element(name, children = []) {
  const e = document.createElement(name);
  let text = "";
  for (const child of [...children, null]) {
    if (typeof child === "string") {
      text += child;
      continue;
    }
    if (text) e.append(text);
    text = "";
    if (child) e.append(child);
  }
  return e;
}

// ---- within a line ---------------------------------------------------------------------------------------------------

const SPECIAL = /\\[!-/:-@[-`{-~]|`+|\*+|_+|~~|!?\[|\]|https?:\/\/[^\s<>"'`*[\]]+/g;
const TARGET = /\( *<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,2000}\)[^\s()<>]{0,2000}){0,4})>?(?: +"[^"\n]{0,300}")? *\)/y;
const SPACE = /\s/, WORD = /[\p{L}\p{N}]/u, PUNCTUATION = /[\p{P}\p{S}]/u;

// The address if a link may lead there, else null.
function allowed(target) {
  try {
    const url = new URL(target);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function link(children, href) {
  const a = element("a", children);
  a.href = href;
  a.rel = "noopener noreferrer nofollow";
  a.target = "_blank";
  return a;
}

// Where each run of backticks is, by its length.
function backticks(text) {
  const runs = new Map();
  for (const { 0: run, index } of text.matchAll(/`+/g)) {
    if (!runs.has(run.length)) runs.set(run.length, []);
    runs.get(run.length).push(index);
  }
  for (const places of runs.values()) places.reverse();  // the next one is taken from the end
  return runs;
}

// A run of *, _ or ~~ that may open or close emphasis, by CommonMark's rules of what stands beside it.
function delimiter(text, run, index) {
  const before = text[index - 1] ?? " ", after = text[index + run.length] ?? " ";
  const left = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
  const right = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
  const inWord = run[0] === "_" && WORD.test(before) && WORD.test(after);
  return { mark: run[0], length: run.length, count: run.length, opens: left && !inWord, closes: right && !inWord };
}

// Runs that can be both match only if no other pairing of their marks is as likely (CommonMark's multiple of three).
function matches(opener, closer) {
  if (opener.mark !== closer.mark) return false;
  return !(opener.closes || closer.opens) || (opener.length + closer.length) % 3 !== 0 || closer.length % 3 === 0;
}

// Strings, nodes and delimiters become strings and nodes.
function emphasised(items) {
  const out = [], open = [], opened = { "*": 0, _: 0, "~": 0 };
  const pop = () => {
    const { run, at } = open.pop();
    --opened[run.mark];
    out[at] = run.mark.repeat(run.count);
  };
  for (const run of items) {
    if (!run.mark) {
      out.push(run);
      continue;
    }
    while (run.closes && run.count > 0 && opened[run.mark] > 0) {
      const opener = open.findLastIndex((other) => matches(other.run, run));
      if (opener < 0) break;
      while (open.length > opener + 1) pop();
      const top = open.at(-1), used = Math.min(top.run.count, run.count, 2);
      const name = run.mark === "~" ? "del" : used === 2 ? "strong" : "em";
      const inside = element(name, out.splice(top.at + 1));
      top.run.count -= used;
      run.count -= used;
      if (top.run.count === 0) {
        open.pop();
        --opened[run.mark];
        out.pop();
      }
      out.push(inside);
    }
    if (run.count === 0) continue;
    out.push(run.mark.repeat(run.count));
    if (!run.opens || open.length >= OPEN_MAX) continue;
    open.push({ run, at: out.length - 1 });
    ++opened[run.mark];
  }
  while (open.length) pop();
  return out;
}

export function inline(text) {
  const items = [], brackets = [], runs = backticks(text);
  let at = 0;
  SPECIAL.lastIndex = 0;
  for (let found; (found = SPECIAL.exec(text)); SPECIAL.lastIndex = at) {
    const [token] = found, first = token[0], index = found.index;
    if (index > at) items.push(text.slice(at, index));
    at = index + token.length;
    if (first === "\\") {
      items.push(token[1]);
    } else if (first === "`") {
      const places = runs.get(token.length) ?? [];  // none if the first of them is escaped
      while (places.length && places.at(-1) <= index) places.pop();
      if (!places.length) {
        items.push(token);
        continue;
      }
      items.push(element("code", [text.slice(at, places.at(-1)).replaceAll("\n", " ").replace(/^ (.*[^ ].*) $/, "$1")]));
      at = places.at(-1) + token.length;
    } else if (first === "h") {
      // What ends a sentence, and a parenthesis that the address did not open, is not part of it.
      let end = token.length, unopened = token.split(")").length - token.split("(").length;
      for (; ".,;:!?".includes(token[end - 1]) || (token[end - 1] === ")" && unopened > 0); --end)
        if (token[end - 1] === ")") --unopened;
      const address = token.slice(0, end);
      at = index + address.length;
      const href = brackets.length ? null : allowed(address);
      items.push(href ? link([address], href) : address);
    } else if (token.endsWith("[")) {
      brackets.push(items.length);
      items.push(token);
    } else if (first === "]") {
      const from = brackets.pop();
      TARGET.lastIndex = at;
      const target = from === undefined ? null : TARGET.exec(text);
      const href = target && allowed(target[1]);
      if (href) {
        items.push(link(emphasised(items.splice(from).slice(1)), href));
        brackets.length = 0;  // no link within a link
      } else {
        items.push(token + (target?.[0] ?? ""));
      }
      if (target) at = TARGET.lastIndex;
    } else {
      items.push(delimiter(text, token, index));
    }
  }
  if (at < text.length) items.push(text.slice(at));
  return emphasised(items);
}

// ---- blocks ----------------------------------------------------------------------------------------------------------

const ITEM = /^( {0,40})([-*+]|\d{1,9}[.)]) +(?=\S)/;
const FENCE = /^ {0,3}(`{3,}|~{3,}) *([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6}) +(\S.*)$/;
const RULE = /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const blank = (line) => line === undefined || !line.trim();
const indent = (line) => line.length - line.trimStart().length;
// What ends a paragraph; a number that is not 1 may be the year that begins a line.
const starts = (line) => {
  const mark = ITEM.exec(line)?.[2];
  return mark !== undefined && (!/\d/.test(mark) || parseInt(mark, 10) === 1);
};
const begins = (line) => FENCE.test(line) || HEADING.test(line) || starts(line) || RULE.test(line) || line.startsWith(">");
const isTable = (line, next) => line.includes("|") && next?.includes("|") && next.includes("-") && /^[\s|:-]+$/.test(next);
const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim());

function codeBlock(lines, fence) {
  const closed = lines.length > 1 && lines.at(-1).trim().startsWith(fence[1]);
  const copy = element("button", ["Copy"]);
  copy.type = "button";
  copy.className = "copy";
  copy.setAttribute("aria-label", "Copy this code");
  const head = element("div", [element("span", [fence[2]]), copy]);
  head.className = "head";
  const block = element("div", [head, element("pre", [element("code", [lines.slice(1, closed ? -1 : undefined).join("\n")])])]);
  block.className = "code";
  return block;
}

function table(lines) {
  const sides = cells(lines[1]).map((cell) => (/^:-+:$/.test(cell) ? "center" : /^-+:$/.test(cell) ? "right" : ""));
  const row = (line, name) => element("tr", cells(line).map((cell, n) => {
    const e = element(name, inline(cell));
    if (sides[n]) e.className = sides[n];
    return e;
  }));
  return element("table", [element("thead", [row(lines[0], "th")]), element("tbody", lines.slice(2).map((line) => row(line, "td")))]);
}

function listEnd(lines, at) {
  const [, { length: base }, mark] = ITEM.exec(lines[at]);
  const same = (found) => found[2].at(-1) === mark.at(-1);
  for (++at; at < lines.length; ++at) {
    const line = lines[at], before = blank(lines[at - 1]), found = ITEM.exec(line);
    if (blank(line)) continue;
    if (indent(line) >= base + 2) continue;
    if (found ? same(found) : !before && !begins(line)) continue;
    break;
  }
  while (blank(lines[at - 1])) --at;
  return at;
}

function list(lines, depth) {
  const [, { length: base }, mark] = ITEM.exec(lines[0]);
  const items = [];
  let width = 0;
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && found[1].length < base + 2) {
      width = found[0].length;
      items.push([line.slice(width)]);
    } else {
      items.at(-1).push(line.slice(Math.min(indent(line), width)));
    }
  }
  const out = element(/\d/.test(mark) ? "ol" : "ul", items.map((inside) => {
    const made = parse(inside, depth + 1).map((block) => block.make());
    return element("li", made[0]?.tagName === "P" ? [...made.shift().childNodes, ...made] : made);
  }));
  if (out.tagName === "OL" && parseInt(mark, 10) !== 1) out.start = parseInt(mark, 10);
  return out;
}

// The block that begins at a line: [the line after it, what makes its node of its lines].
function block(lines, at, depth) {
  const line = lines[at], fence = FENCE.exec(line), heading = HEADING.exec(line);
  let end = at + 1;
  if (fence) {
    const closing = (l) => l.trim().startsWith(fence[1]) && !l.trim().replaceAll(fence[1][0], "");
    while (end < lines.length && !closing(lines[end])) ++end;
    return [Math.min(end + 1, lines.length), (own) => codeBlock(own, fence)];
  }
  // The page has the first two levels.
  if (heading) return [end, () => element("h" + Math.min(heading[1].length + 2, 6), inline(heading[2].replace(/ #+ *$/, "")))];
  if (RULE.test(line)) return [end, () => element("hr")];
  if (depth < DEPTH_MAX && ITEM.test(line)) return [listEnd(lines, at), (own) => list(own, depth)];
  if (depth < DEPTH_MAX && line.startsWith(">")) {
    const lazy = (at) => !blank(lines[at]) && !begins(lines[at]) && !ITEM.test(lines[at]) && !/^[> ]*$/.test(lines[at - 1]);
    while (end < lines.length && (lines[end].startsWith(">") || lazy(end))) ++end;
    return [end, (own) => element("blockquote", parse(own.map((l) => l.replace(/^> ?/, "")), depth + 1).map((b) => b.make()))];
  }
  if (isTable(line, lines[at + 1])) {
    for (++end; end < lines.length && lines[end].includes("|"); ++end);
    return [end, table];
  }
  while (!blank(lines[end]) && !begins(lines[end]) && !isTable(lines[end], lines[end + 1])) ++end;
  return [end, (own) => element("p", inline(own.map((l) => l.trim()).join("\n")))];
}

function parse(lines, depth = 0) {
  const out = [];
  for (let at = 0; at < lines.length;) {
    if (blank(lines[at])) {
      ++at;
      continue;
    }
    const [end, make] = block(lines, at, depth), own = lines.slice(at, end);
    out.push({ text: own.join("\n"), make: () => make(own) });
    at = end;
  }
  return out;
}

// Shows a text in an element that nothing else fills. Blocks that are there already keep their nodes, so that a growing
// answer costs what its last block does, and a selection above that one stays.
const shown = new WeakMap();
export function render(box, text) {
  const before = shown.get(box) ?? [], blocks = parse(text.replaceAll("\r", "").split("\n"));
  let same = 0;
  while (same < blocks.length && before[same]?.text === blocks[same].text) ++same;
  while (box.childNodes.length > same) box.lastChild.remove();
  for (const b of blocks.slice(same)) box.append(b.make());
  shown.set(box, blocks.map((b) => ({ text: b.text })));
}
