// Records of a partition, from an offset or a time.

import { aged, ask } from "./ask.js";
import { $, bytes, element, number, plural, put, time } from "./dom.js";
import { place } from "./place.js";
import { data, named, recordOf } from "./values.js";

const FOLLOWED_RECORDS = 1000;
let asked = null;  // the records on the page: topic, partition, from, next offset
let following = 0;  // counts up: an older one ends

// What the address asks for: a page of records, or none.
export async function openRecords() {
  const { topic, partition, from, query } = place();
  if (topic !== asked?.topic) { show([]); outcome(""); asked = null; }
  following += 1;
  if (!topic || partition === undefined || from === undefined) return;
  for (const name of ["tier", "isolation", "count", "view"]) if (query.has(name)) $(name).value = query.get(name);
  const part = ["key", "contains"].find((name) => query.has(name));
  $("filter").value = part ? query.get(part) : "";
  if (part) $("filter-part").value = part;
  $("follow").checked = query.has("follow");
  $("partition").value = partition;
  const byTime = from.startsWith("@");
  document.querySelector(`input[name=from][value=${byTime ? "time" : "offset"}]`).checked = true;
  chooseFrom();
  if (byTime) $("time").value = new Date(Number(from.slice(1)) - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  else $("offset").value = from;
  await read(topic, partition, byTime ? { timestamp: from.slice(1) } : { offset: from });
}

function filter() {
  const part = $("filter-part").value, text = $("filter").value;
  return text ? { [part]: text } : {};
}

function viewed() {
  const query = new URLSearchParams({
    count: $("count").value, tier: $("tier").value, isolation: $("isolation").value, ...filter(),
  });
  if ($("view").value !== "text") query.set("view", $("view").value);
  if ($("follow").checked) query.set("follow", "");
  return query;
}

export function readFrom(topic, partition, from) {
  const hash = `#/${[topic, partition, from].map(encodeURIComponent).join("/")}?${viewed()}`;
  if (location.hash === hash) dispatchEvent(new Event("hashchange"));
  else location.hash = hash;
}

// The address says how records are shown, and nothing is read for it.
function keepAddress() {
  const { topic, partition, from } = place();
  if (from === undefined) return;
  history.replaceState(null, "", `#/${[topic, partition, from].map(encodeURIComponent).join("/")}?${viewed()}`);
}

function where() {
  if (document.querySelector("input[name=from]:checked").value === "offset") return $("offset").value;
  return `@${new Date($("time").value).getTime()}`;
}

function recordsPath({ topic, partition, wanted }, from, more = {}) {
  const query = new URLSearchParams({
    ...from, max_records: $("count").value, tier: $("tier").value, isolation_level: $("isolation").value, ...wanted, ...more,
  });
  return `/v1/topics/${encodeURIComponent(topic)}/partitions/${encodeURIComponent(partition)}/records?${query}`;
}

// While no broker answers, what the remote tier has; its beginning can be told then, and no other time.
async function recordsOf(reading, from, more, accept) {
  try {
    return await ask(recordsPath(reading, from, more), accept);
  } catch (error) {
    if (!["BrokerUnavailable", "TimedOut"].includes(error.said?.error) || $("tier").value === "local") throw error;
    if (from.timestamp !== undefined && from.timestamp !== "0") throw error;
    const at = from.timestamp ? { offset: (await bounds(reading)).log_start_offset ?? 0 } : from;
    return ask(recordsPath(reading, at, { ...more, tier: "remote" }), accept);
  }
}

// A page from somewhere on: its records, and how far it looked.
async function page(reading, from, more = {}) {
  const decode = $("view").value === "decoded" ? { decode: "true" } : {};
  const answer = await recordsOf(reading, from, { ...decode, ...more }, "application/x-ndjson");
  const records = (await answer.text()).split("\n").filter(Boolean).map(recordOf);
  const header = (name) => answer.headers.get(name);
  return {
    records, next: Number(header("x-next-offset")), tier: header("x-tier"), end: Number(header("x-high-watermark")),
    stopped: header("x-scan-stopped"), looked: Number(header("x-scanned-records")), bytes: Number(header("x-scanned-bytes")),
    aged: aged(answer),
  };
}

function outcome(text) {
  put("outcome", text);
}

async function read(topic, partition, from) {
  outcome("Reading…");
  $("look-on").hidden = true;
  const reading = { topic, partition, from, wanted: filter(), looked: 0, bytes: 0 };
  asked = reading;
  try {
    const found = await page(reading, from);
    if (asked !== reading) return;
    asked.first = found.records[0]?.offset ?? Number(from.offset ?? found.next);
    asked.shown = [];
    take(reading, found);
    enable(true);
    $("previous").disabled = asked.first <= 0 || Boolean(found.stopped);
    if ($("follow").checked) follow();
  } catch (error) {
    if (asked !== reading) return;
    enable(false);
    show([]);
    outcome(error.message);
  }
}

function enable(able) {
  for (const name of ["next", "ndjson", "arrow", "parquet"]) $(name).disabled = !able;
  if (!able) $("previous").disabled = true;
}

const STOPPED = {
  end: "That is the end of the log.", records: "There may be more.", bytes: "There may be more.",
  budget: "The gateway looks no further in one call.", tier: "There may be more.",
  error: "What follows could not be read now.",
};

function take(reading, found) {
  reading.next = found.next;
  reading.shown.push(...found.records);
  show(reading.shown);
  if (!found.stopped) {
    outcome(`${plural(reading.shown.length, "record")}, tier: ${found.tier}; ` +
      `next offset ${number.format(found.next)} of ${number.format(found.end)}. ${found.aged}`);
    return;
  }
  reading.looked += found.looked;
  reading.bytes += found.bytes;
  outcome(`${plural(reading.shown.length, "record")} found in ${number.format(reading.looked)} looked through, ` +
    `${bytes(reading.bytes)}, up to offset ${number.format(found.next)} of ${number.format(found.end)}. ${STOPPED[found.stopped]} ${found.aged}`);
  $("look-on").hidden = found.stopped === "end";
}

// Goes on with what is looked for, behind what is shown; until as many more are found, or one more budget is spent.
async function lookOn() {
  const reading = asked;
  $("look-on").disabled = true;
  try {
    const found = await page(reading, { offset: reading.next });
    if (asked === reading) take(reading, found);
  } catch (error) {
    if (asked === reading) outcome(error.message);
  } finally {
    $("look-on").disabled = false;
  }
}

// Appends what arrives, until the box is unchecked or another view is asked for.
async function follow() {
  const mine = ++following;
  while ($("follow").checked && mine === following && asked?.next !== undefined && !document.hidden) {
    const reading = asked;
    try {
      const found = await page(reading, { offset: reading.next }, { timeout_ms: 10000 });
      if (asked !== reading || mine !== following) return;
      reading.next = found.next;
      reading.shown.push(...found.records);
      reading.shown.splice(0, reading.shown.length - FOLLOWED_RECORDS);
      if (found.records.length) show(reading.shown);
      outcome(`Following: next offset ${number.format(reading.next)}.`);
      $("look-on").hidden = true;
    } catch (error) {
      $("follow").checked = false;
      outcome(error.message);
    }
  }
}

async function bounds({ topic, partition }) {
  const query = new URLSearchParams({ partition });
  return (await (await ask(`/v1/topics/${encodeURIComponent(topic)}/partitions?${query}`)).json()).partitions[0];
}

// To the beginning or the end, as they are now.
async function jump(offsetOf) {
  try {
    readFrom(place().topic, $("partition").value, String(offsetOf(await bounds({ topic: place().topic, partition: $("partition").value }))));
  } catch (error) {
    outcome(error.message);
  }
}

async function download(accept, ending) {
  const kept = asked;
  try {
    const count = Math.max(Number($("count").value), kept.shown.length);
    const answer = await recordsOf(kept, { offset: kept.first }, { max_records: count }, accept);
    const link = element("a", {
      href: URL.createObjectURL(await answer.blob()), download: `${kept.topic}-${kept.partition}-${kept.first}.${ending}`,
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    if (["budget", "bytes", "error"].includes(answer.headers.get("x-scan-stopped"))) {
      outcome(`The file ends before offset ${number.format(answer.headers.get("x-next-offset"))}: one call looks no further.`);
    }
  } catch (error) {
    outcome(error.message);
  }
}

const FIELDS = ["Offset", "Time", "Tier", "Key", "Value", "Headers"];

function show(records) {
  $("table").hidden = !records.length;
  $("table").tBodies[0].replaceChildren(...records.map((record) => {
    const cells = [
      element("td", { className: "number", textContent: record.offset }),
      element("td", { className: "time", textContent: time(record.timestamp) }),
      element("td", {}, element("span", { className: `tag ${record.tier}`, textContent: record.tier })),
      data(record.key, record.keyDecoded), data(record.value, record.valueDecoded), named(record.headers),
    ];
    cells.forEach((cell, nth) => { cell.dataset.label = FIELDS[nth]; });
    return element("tr", {}, ...cells);
  }));
}

function chooseFrom() {
  const byOffset = document.querySelector("input[name=from]:checked").value === "offset";
  $("offset-label").hidden = !byOffset;
  $("time-label").hidden = byOffset;
  $("offset").required = byOffset;
  $("time").required = !byOffset;
}

for (const radio of document.querySelectorAll("input[name=from]")) radio.addEventListener("change", chooseFrom);
$("read").addEventListener("submit", (event) => { event.preventDefault(); readFrom(place().topic, $("partition").value, where()); });
$("next").addEventListener("click", () => readFrom(asked.topic, asked.partition, String(asked.next)));
$("previous").addEventListener("click", () =>
  readFrom(asked.topic, asked.partition, String(Math.max(0, asked.first - Number($("count").value)))));
$("first").addEventListener("click", () => jump((p) => p.log_start_offset ?? 0));
$("last").addEventListener("click", () => jump((p) => Math.max(p.log_start_offset ?? 0, (p.high_watermark ?? p.copied_to + 1) - Number($("count").value))));
$("ndjson").addEventListener("click", () => download("application/x-ndjson", "ndjson"));
$("arrow").addEventListener("click", () => download("application/vnd.apache.arrow.stream", "arrows"));
$("parquet").addEventListener("click", () => download("application/vnd.apache.parquet", "parquet"));
$("look-on").addEventListener("click", lookOn);
$("view").addEventListener("change", () => {
  keepAddress();
  const isDecoded = asked?.shown?.some((record) => record.valueDecoded !== undefined);
  if ($("view").value === "decoded" && asked && !isDecoded) read(asked.topic, asked.partition, asked.from);
  else show(asked?.shown ?? []);
});
$("follow").addEventListener("change", () => { keepAddress(); follow(); });
