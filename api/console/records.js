// Records of a partition, from an offset or a time.

import { ask } from "./ask.js";
import { $, element, number, plural, time } from "./dom.js";
import { place } from "./place.js";
import { data } from "./values.js";

const FOLLOWED_RECORDS = 1000;
let asked = null;  // the records on the page: topic, partition, from, next offset
let following = 0;  // counts up: an older one ends

// What the address asks for: a page of records, or none.
export async function openRecords() {
  const { topic, partition, from, query } = place();
  if (topic !== asked?.topic) { show([]); $("outcome").textContent = ""; asked = null; }
  following += 1;
  if (!topic || partition === undefined || from === undefined) return;
  for (const name of ["tier", "isolation", "count", "view"]) if (query.has(name)) $(name).value = query.get(name);
  $("follow").checked = query.has("follow");
  $("partition").value = partition;
  const byTime = from.startsWith("@");
  document.querySelector(`input[name=from][value=${byTime ? "time" : "offset"}]`).checked = true;
  chooseFrom();
  if (byTime) $("time").value = new Date(Number(from.slice(1)) - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  else $("offset").value = from;
  await read(topic, partition, byTime ? { timestamp: from.slice(1) } : { offset: from });
}

export function readFrom(topic, partition, from) {
  const query = new URLSearchParams({ count: $("count").value, tier: $("tier").value, isolation: $("isolation").value });
  if ($("view").value !== "text") query.set("view", $("view").value);
  if ($("follow").checked) query.set("follow", "");
  const hash = `#/${[topic, partition, from].map(encodeURIComponent).join("/")}?${query}`;
  if (location.hash === hash) dispatchEvent(new Event("hashchange"));
  else location.hash = hash;
}

function where() {
  if (document.querySelector("input[name=from]:checked").value === "offset") return $("offset").value;
  return `@${new Date($("time").value).getTime()}`;
}

function recordsPath({ topic, partition }, from) {
  const query = new URLSearchParams({
    ...from, max_records: $("count").value, tier: $("tier").value, isolation_level: $("isolation").value,
  });
  return `/v1/topics/${encodeURIComponent(topic)}/partitions/${encodeURIComponent(partition)}/records?${query}`;
}

async function read(topic, partition, from) {
  $("outcome").textContent = "Reading…";
  const reading = { topic, partition, from };
  asked = reading;
  try {
    const answer = await ask(recordsPath(reading, from), "application/x-ndjson");
    const lines = (await answer.text()).split("\n").filter(Boolean).map(JSON.parse);
    if (asked !== reading) return;
    asked.next = Number(answer.headers.get("x-next-offset"));
    asked.first = lines[0]?.offset ?? Number(from.offset ?? asked.next);
    asked.shown = lines;
    show(lines);
    const end = answer.headers.get("x-high-watermark");
    $("outcome").textContent =
      `${plural(lines.length, "record")}, tier: ${answer.headers.get("x-tier")}; ` +
      `next offset ${number.format(asked.next)} of ${number.format(end)}.`;
    for (const name of ["next", "ndjson", "arrow", "parquet"]) $(name).disabled = false;
    $("previous").disabled = asked.first <= 0;
    if ($("follow").checked) follow();
  } catch (error) {
    if (asked !== reading) return;
    for (const name of ["previous", "next", "ndjson", "arrow", "parquet"]) $(name).disabled = true;
    show([]);
    $("outcome").textContent = error.message;
  }
}

// Appends what arrives, until the box is unchecked or another view is asked for.
async function follow() {
  const mine = ++following;
  while ($("follow").checked && mine === following && asked?.next !== undefined && !document.hidden) {
    const reading = asked;
    try {
      const answer = await ask(`${recordsPath(reading, { offset: reading.next })}&timeout_ms=10000`, "application/x-ndjson");
      const lines = (await answer.text()).split("\n").filter(Boolean).map(JSON.parse);
      if (asked !== reading || mine !== following) return;
      reading.next = Number(answer.headers.get("x-next-offset"));
      reading.shown.push(...lines);
      reading.shown.splice(0, reading.shown.length - FOLLOWED_RECORDS);
      if (lines.length) show(reading.shown);
      $("outcome").textContent = `Following: next offset ${number.format(reading.next)}.`;
    } catch (error) {
      $("follow").checked = false;
      $("outcome").textContent = error.message;
    }
  }
}

async function bounds() {
  const { topic } = place();
  return (await ask(`/v1/topics/${encodeURIComponent(topic)}/partitions/${encodeURIComponent($("partition").value)}`)).json();
}

// To the beginning or the end, as they are now.
async function jump(offsetOf) {
  try {
    readFrom(place().topic, $("partition").value, String(offsetOf(await bounds())));
  } catch (error) {
    $("outcome").textContent = error.message;
  }
}

async function download(accept, ending) {
  try {
    const answer = await ask(recordsPath(asked, { offset: asked.first }), accept);
    const link = element("a", {
      href: URL.createObjectURL(await answer.blob()), download: `${asked.topic}-${asked.partition}-${asked.first}.${ending}`,
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  } catch (error) {
    $("outcome").textContent = error.message;
  }
}

const FIELDS = ["Offset", "Time", "Tier", "Key", "Value", "Headers"];

function show(records) {
  $("table").hidden = !records.length;
  $("table").tBodies[0].replaceChildren(...records.map((record) => {
    const headers = record.headers.map((h) => `${h.key}=${typeof h.value === "object" ? h.value?.base64 ?? "null" : h.value}`);
    const cells = [
      element("td", { className: "number", textContent: record.offset }),
      element("td", { className: "time", textContent: time(record.timestamp) }),
      element("td", {}, element("span", { className: `tag ${record.tier}`, textContent: record.tier })),
      data(record.key), data(record.value),
      element("td", { className: "data", textContent: headers.join("\n") }),
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
$("last").addEventListener("click", () => jump((p) => Math.max(p.log_start_offset ?? 0, p.high_watermark - Number($("count").value))));
$("ndjson").addEventListener("click", () => download("application/x-ndjson", "ndjson"));
$("arrow").addEventListener("click", () => download("application/vnd.apache.arrow.stream", "arrows"));
$("parquet").addEventListener("click", () => download("application/vnd.apache.parquet", "parquet"));
$("view").addEventListener("change", () => show(asked?.shown ?? []));
$("follow").addEventListener("change", follow);
