// All Iceberg tables that follow topics.

import { $, duration, element, number, plural } from "./dom.js";

const ORDER = ["stopped", "unknown", "behind", "current"];  // those in trouble first

const quiet = (textContent) => element("span", { className: "quiet", textContent });
const unlessUnknown = (value, shown) => (value === null ? quiet("unknown") : shown(value));

const COLUMNS = [
  { name: "Table", of: (t) => t.table },
  { name: "Topic", of: (t) => unlessUnknown(t.topic, (topic) => element("a", { href: `#/${encodeURIComponent(topic)}`, textContent: topic })) },
  { name: "State", of: (t) => element("span", { className: ["stopped", "unknown"].includes(t.state) ? "trouble" : "", textContent: t.reason ? `${t.state}: ${t.reason}` : t.state }) },
  { name: "Rows", number: true, of: (t) => unlessUnknown(t.rows, number.format) },
  { name: "Files", number: true, of: (t) => unlessUnknown(t.files, number.format) },
  { name: "Behind", number: true, of: (t) => unlessUnknown(t.lag, (lag) => number.format(lag) + (lag && t.lag_seconds !== null ? `, ${duration(t.lag_seconds)}` : "")) },
  { name: "Last commit", of: (t) => (t.last_commit === null ? quiet("none") : t.last_commit.replace("T", " ").replace("Z", "")) },
];

export function drawTables(tables) {
  const rows = tables.toSorted((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.table.localeCompare(b.table));
  $("tables-table").tHead.rows[0].replaceChildren(...COLUMNS.map(({ name, number: isNumber }) =>
    element("th", { scope: "col", className: isNumber ? "number" : "", textContent: name })));
  $("tables-table").tBodies[0].replaceChildren(...rows.map((table) => element("tr", {}, ...COLUMNS.map((column) => {
    const cell = element("td", { className: column.number ? "number" : "" }, column.of(table));
    cell.dataset.label = column.name;
    return cell;
  }))));
  $("tables-table").hidden = !rows.length;
  $("no-tables").hidden = Boolean(rows.length);
  $("tables-total").textContent = plural(rows.length, "table");
}
