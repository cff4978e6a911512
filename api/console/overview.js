// All topics in one table.

import { $, bytes, duration, element, number, plural } from "./dom.js";

let listed = [];
let order = null;  // column, and whether it is turned round

const COLUMNS = [
  { name: "Topic", of: (t) => t.topic, shown: (t) => element("a", { href: `#/${encodeURIComponent(t.topic)}`, textContent: t.topic }) },
  { name: "Trouble", of: (t) => t.partitions_in_trouble + (t.orders.length ? 0.5 : 0), most: true, shown: inWords },
  { name: "Partitions", of: (t) => t.partitions, most: true, number: true },
  { name: "Size by tier", of: (t) => t.remote_bytes + (t.local_log_bytes ?? 0), most: true, shown: byTier },
  { name: "Remote", of: (t) => t.remote_bytes, most: true, number: true, shown: (t) => bytes(t.remote_bytes) },
  { name: "Local", of: (t) => t.local_log_bytes ?? -1, most: true, number: true, shown: (t) => unlessUnknown(t.local_log_bytes, bytes) },
  { name: "Broker saves", of: (t) => t.freed_bytes ?? -1, most: true, number: true, shown: (t) => unlessUnknown(t.freed_bytes, bytes) },
  { name: "To copy", of: (t) => t.copy_lag_bytes ?? -1, most: true, number: true, shown: lag },
];

// As long as the largest topic is, both tiers; the numbers beside it say the same.
function byTier(topic) {
  const largest = Math.max(1, ...listed.map((t) => t.remote_bytes + (t.local_log_bytes ?? 0)));
  const drawn = element("span", { className: "tiers" });
  drawn.setAttribute("aria-hidden", "true");
  for (const [kind, size] of [["remote", topic.remote_bytes], ["local", topic.local_log_bytes ?? 0]]) {
    const part = element("i", { className: kind });
    part.style.width = `${(size / largest) * 100}%`;
    if (size) drawn.append(part);
  }
  return drawn;
}

function unlessUnknown(value, shown) {
  return value === null ? element("span", { className: "quiet", textContent: "unknown" }) : shown(value);
}

function lag(topic) {
  const since = topic.copy_lag_segments ? `, ${duration(topic.copy_lag_seconds)}` : "";
  return unlessUnknown(topic.copy_lag_bytes, (size) => `${bytes(size)}${since}`);
}

function inWords(topic) {
  const words = [...topic.orders.map((each) => `order: ${each}`)];
  if (topic.partitions_in_trouble) words.unshift(`${topic.trouble.join(", ")} (${plural(topic.partitions_in_trouble, "partition")})`);
  if (!words.length) return element("span", { className: "quiet", textContent: "none" });
  return element("span", { className: "trouble", textContent: words.join("; ") });
}

function sorted(topics) {
  if (!order) return topics;  // as the gateway lists them: worst first
  const { column, turned } = order;
  const compare = (a, b) => (column.of(a) < column.of(b) ? -1 : column.of(a) > column.of(b) ? 1 : 0);
  const sign = Boolean(column.most) !== turned ? -1 : 1;
  return topics.toSorted((a, b) => sign * compare(a, b) || a.topic.localeCompare(b.topic));
}

function heads() {
  $("topics").tHead.rows[0].replaceChildren(...COLUMNS.map((column) => {
    const button = element("button", { type: "button", textContent: column.name });
    button.addEventListener("click", () => {
      order = { column, turned: order?.column === column && !order.turned };
      drawTable();
      $("topics").tHead.rows[0].cells[COLUMNS.indexOf(column)].firstChild.focus();
    });
    const head = element("th", { scope: "col", className: column.number ? "number" : "" }, button);
    if (order?.column === column) head.ariaSort = Boolean(column.most) !== order.turned ? "descending" : "ascending";
    return head;
  }));
}

export function drawOverview(topics) {
  listed = topics;
  drawTable();
}

function drawTable() {
  heads();
  const wanted = $("find").value.trim().toLowerCase();
  const found = sorted(listed.filter((t) => t.topic.toLowerCase().includes(wanted)));
  $("topics").tBodies[0].replaceChildren(...found.map((topic) => element("tr", {}, ...COLUMNS.map((column) => {
    const cell = element("td", { className: column.number ? "number" : "" },
      column.shown ? column.shown(topic) : number.format(column.of(topic)));
    cell.dataset.label = column.name;
    return cell;
  }))));
  $("topics").hidden = !found.length;
  $("no-topics").hidden = Boolean(found.length);
  $("no-topics").textContent = listed.length ? "No topic has that in its name." : "No tiered topic yet.";
  const sum = (key) => listed.reduce((total, t) => total + t[key], 0);
  $("totals").textContent =
    `${plural(listed.length, "topic")} · ${plural(sum("remote_segments"), "segment")} · ${bytes(sum("remote_bytes"))} in the remote tier`;
}

$("find").addEventListener("input", drawTable);
