// Pieces of a page. Data only ever becomes text (textContent), never markup, and none that moves or hides other text.

export const $ = (id) => document.getElementById(id);
export const number = new Intl.NumberFormat("en");
export const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

// Control characters and what sets the direction of text, written out; the command line does the same (runtime/visible.py).
const HIDDEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
export const visible = (text) => String(text ?? "").replace(HIDDEN, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  for (const text of ["textContent", "title"]) if (text in properties) made[text] = visible(properties[text]);
  made.append(...children.map((each) => (typeof each === "string" ? visible(each) : each)));
  return made;
}

// The text of what is on the page already.
export function put(id, text) {
  $(id).textContent = visible(text);
}

export function plural(count, name) {
  return `${number.format(count)} ${name}${count === 1 ? "" : "s"}`;
}

// 0, 1, 2, 7 as "0 to 2, 7".
export function spans(numbers) {
  const found = [];
  for (const each of [...numbers].sort((a, b) => a - b)) {
    if (found.at(-1)?.[1] === each - 1) found.at(-1)[1] = each;
    else found.push([each, each]);
  }
  return found.map(([from, to]) => (from === to ? number.format(from) : `${number.format(from)} to ${number.format(to)}`)).join(", ");
}

export function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (size >= 1024 && at < units.length - 1) { size /= 1024; at += 1; }
  return `${size < 10 && at ? size.toFixed(1) : Math.round(size)} ${units[at]}`;
}

export function duration(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const [name, size] = units.find(([, each]) => seconds >= each) ?? units[3];
  return `${Math.round(seconds / size)} ${name}`;
}

export function time(ms) {
  const when = new Date(ms);
  return ms < 0 || Number.isNaN(when.getTime()) ? String(ms) : when.toISOString().replace("T", " ").replace("Z", "");
}

export function say(text) {
  if ($("status").textContent !== visible(text)) put("status", text);
}
