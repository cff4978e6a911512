// What producers wrote, as text, JSON, hex, or what a schema says.

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

// Numbers with every digit, where the browser keeps them.
function exact(key, value, context) {
  return typeof value === "number" && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

// What is no JSON stays as it is; numbers are never rounded, so neither is anything where a browser would.
function indented(text) {
  if (!JSON.rawJSON) return text;
  try {
    return JSON.stringify(JSON.parse(text, exact), null, 2);
  } catch {
    return text;
  }
}

// A line of ndjson; what a schema says of it as text that is ready to be shown.
export function recordOf(line) {
  const record = JSON.parse(line);
  if (record.keyDecoded === undefined) return record;
  const digits = JSON.parse(line, exact);
  for (const name of ["keyDecoded", "valueDecoded"]) {
    if (record[name]) record[name].text = "value" in record[name] ? JSON.stringify(digits[name].value, null, 2) : null;
  }
  return record;
}

// As its schema says, or why not: text that names no schema stays text, what cannot be read by one is bytes.
function decoded(value, said) {
  const isNamed = said.schemaId !== undefined;
  const text = said.text ?? (isNamed ? hex(bytesOf(value)) : plain(value));
  const why = said.reason ?? `${said.schemaType} ${said.schemaId}`;
  const note = element("p", { className: said.reason && isNamed ? "note reason" : "note", textContent: why });
  return element("td", { className: "data" }, element("div", {}, element("div", { textContent: text }), note));
}

function plain(value) {
  return typeof value === "object" ? `base64: ${value.base64}` : value;
}

// In the view that is chosen.
function shown(value) {
  if (value === null) return "null";
  if ($("view").value === "hex") return hex(bytesOf(value));
  return $("view").value === "json" && typeof value === "string" ? indented(value) : plain(value);
}

export function data(value, said) {
  if (value !== null && $("view").value === "decoded" && said) return decoded(value, said);
  return element("td", { className: value === null ? "data null" : "data", textContent: shown(value) });
}

export function named(headers) {
  const textContent = headers.map(({ key, value }) => `${key}=${shown(value)}`).join("\n");
  return element("td", { className: "data", textContent });
}
