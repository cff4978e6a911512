// What producers wrote, as text, JSON or hex.

import { $, element, plural } from "./dom.js";

const HEX_BYTES = 4096;

// Of UTF-8 text, or of base64 where a value is none.
function bytesOf(value) {
  if (typeof value === "object") return Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0));
  return new TextEncoder().encode(value);
}

function hex(found) {
  const rows = [];
  for (let at = 0; at < Math.min(found.length, HEX_BYTES); at += 16) {
    const row = Array.from(found.slice(at, at + 16));
    const codes = row.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    rows.push(codes + row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join(""));
  }
  if (found.length > HEX_BYTES) rows.push(`and ${plural(found.length - HEX_BYTES, "byte")} more`);
  return rows.join("\n");
}

// What is no JSON stays as it is; numbers are never rounded, so neither is anything where a browser would.
function indented(text) {
  if (!JSON.rawJSON) return text;
  const exact = (key, value, context) => (typeof value === "number" ? JSON.rawJSON(context.source) : value);
  try {
    return JSON.stringify(JSON.parse(text, exact), null, 2);
  } catch {
    return text;
  }
}

export function data(value) {
  if (value === null) return element("td", { className: "data null", textContent: "null" });
  if ($("view").value === "hex") return element("td", { className: "data", textContent: hex(bytesOf(value)) });
  if (typeof value === "object") return element("td", { className: "data", textContent: `base64: ${value.base64}` });
  const textContent = $("view").value === "json" ? indented(value) : value;
  return element("td", { className: "data", textContent });
}
