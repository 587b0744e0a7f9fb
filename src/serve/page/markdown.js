// Markdown of answers as DOM nodes. Text of the model only ever becomes the text of a node: no HTML of its own is
// interpreted, and links lead to http and https alone.

const element = (name, ...children) => {
  const e = document.createElement(name);
  e.append(...children);
  return e;
};

function link(label, target) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return null;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  const a = element("a", ...label);
  a.href = url.href;
  a.rel = "noopener noreferrer nofollow";
  a.target = "_blank";
  return a;
}

// Code, bold, emphasis, links and bare addresses; whatever does not close stays text.
const INLINE = /(`+)(?!`)(.+?)(?<!`)\1(?!`)|\*\*(?=\S)(.+?)(?<=\S)\*\*|\*(?=[^\s*])([^*]+?)(?<=\S)\*|\[([^\[\]]+)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?])/s;

export function inline(text, depth = 0) {
  const out = [];
  for (let found = depth < 8 && INLINE.exec(text); found; found = INLINE.exec(text)) {
    if (found.index > 0) out.push(text.slice(0, found.index));
    const [whole, , code, bold, emphasis, label, target, address] = found;
    let node = null;
    if (code !== undefined) node = element("code", code.replace(/^ (.*) $/s, "$1"));
    else if (bold !== undefined) node = element("strong", ...inline(bold, depth + 1));
    else if (emphasis !== undefined) node = element("em", ...inline(emphasis, depth + 1));
    else if (label !== undefined) node = link(inline(label, depth + 1), target);
    else node = link([address], address);
    out.push(node ?? whole);
    text = text.slice(found.index + whole.length);
  }
  if (text) out.push(text);
  return out;
}

const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +/;
const FENCE = /^ {0,3}(```+|~~~+) *(\S*)/;
const HEADING = /^(#{1,6}) +(.*?)(?: +#+)?$/;
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
const begins = (line) => FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || line.startsWith(">");

function table(lines) {
  const row = (line, name) => element("tr", ...cells(line).map((cell) => element(name, ...inline(cell))));
  const head = row(lines.shift(), "th");
  lines.shift();
  const body = element("tbody");
  while (lines.length && lines[0].includes("|")) body.append(row(lines.shift(), "td"));
  return element("table", element("thead", head), body);
}

function list(lines, depth) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const ordered = /\d/.test(mark), out = element(ordered ? "ol" : "ul");
  if (ordered) out.start = parseInt(mark, 10);
  while (lines.length) {
    const found = ITEM.exec(lines[0]);
    if (!found || found[1].length < indent.length || /\d/.test(found[2]) !== ordered) break;
    const inside = [lines.shift().slice(found[0].length)];
    while (lines.length && (lines[0].startsWith(" ".repeat(indent.length + 2)) || (lines[0].trim() && !begins(lines[0]))))
      inside.push(lines.shift().slice(indent.length).replace(/^ {1,4}/, ""));
    const item = element("li"), blocks = parse(inside, depth + 1);
    item.append(...(blocks[0]?.tagName === "P" ? [...blocks.shift().childNodes, ...blocks] : blocks));
    out.append(item);
    while (lines.length > 1 && !lines[0].trim() && ITEM.test(lines[1])) lines.shift();
  }
  return out;
}

function parse(lines, depth = 0) {
  const out = [];
  while (lines.length) {
    const line = lines[0];
    const fence = FENCE.exec(line), heading = HEADING.exec(line);
    if (!line.trim()) {
      lines.shift();
    } else if (fence) {
      lines.shift();
      const code = [];
      while (lines.length && !lines[0].trimStart().startsWith(fence[1])) code.push(lines.shift());
      lines.shift();
      out.push(element("pre", element("code", code.join("\n"))));
    } else if (heading) {
      lines.shift();
      out.push(element("h" + heading[1].length, ...inline(heading[2])));
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      lines.shift();
      out.push(element("hr"));
    } else if (depth < 8 && ITEM.test(line)) {
      out.push(list(lines, depth));
    } else if (depth < 8 && line.startsWith(">")) {
      const quoted = [];
      while (lines.length && lines[0].startsWith(">")) quoted.push(lines.shift().replace(/^> ?/, ""));
      out.push(element("blockquote", ...parse(quoted, depth + 1)));
    } else if (line.includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[1] ?? "") && lines[1].includes("|")) {
      out.push(table(lines));
    } else {
      const text = [lines.shift()];
      while (lines.length && lines[0].trim() && !begins(lines[0])) text.push(lines.shift());
      out.push(element("p", ...inline(text.join("\n"))));
    }
  }
  return out;
}

export const markdown = (text) => parse(text.replaceAll("\r", "").split("\n"));
