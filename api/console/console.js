"use strict";
// Draws what /v1 says. Data only ever becomes text (textContent), never markup.

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const REFRESH_MS = 5000;
let token = sessionStorage.getItem("tierstate.token");
const SHOWN_PARTITIONS = 12;
const SHOWN_SEGMENTS = 500;
const FOLLOWED_RECORDS = 1000;
const HEX_BYTES = 4096;
let asked = null;  // the records on the page: topic, partition, from, next offset
let listed = [];
let order = null;  // column of the overview, and whether it is turned round
let firstPartition = 0;
const AGENT_MS = 15000;
const agents = new Map();  // TOPIC/PARTITION: when its agent was asked, and what it said
let following = 0;  // counts up: an older one ends

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function ask(path, accept = "application/json") {
  const headers = { accept };
  if (token) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(path, { headers });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({ message: `the gateway answered ${answer.status}` }));
  if (answer.status === 401) $("login").hidden = false;
  throw Object.assign(new Error(said.message), { said });
}

function plural(count, name) {
  return `${number.format(count)} ${name}${count === 1 ? "" : "s"}`;
}

function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (size >= 1024 && at < units.length - 1) { size /= 1024; at += 1; }
  return `${size < 10 && at ? size.toFixed(1) : Math.round(size)} ${units[at]}`;
}

// The log of a partition as regions, ascending: who has which offsets.
function regions(p) {
  const found = [];
  const add = (kind, start, end) => { if (end >= start) found.push({ kind, start, end }); };
  let at = p.log_start_offset;
  for (const gap of p.gaps) {
    add("remote", at, gap.start - 1);
    add("gap", gap.start, gap.end);
    at = gap.end + 1;
  }
  add("remote", at, p.local_log_start_offset - 1);
  const local = Math.max(p.local_log_start_offset, p.log_start_offset);
  const both = p.overlap ? Math.min(p.overlap.end, p.high_watermark - 1) : local - 1;
  add("overlap", local, both);
  add("local", Math.max(both + 1, local), p.high_watermark - 1);
  return found;
}

const SAID = { remote: "remote", overlap: "in both tiers", local: "local", gap: "gap, in no tier" };

function bar(topic, p) {
  const drawn = element("div", { className: "bar" });
  drawn.setAttribute("role", "group");
  drawn.setAttribute("aria-label", `Partition ${p.partition} of ${topic}`);
  if (p.high_watermark === null) {
    drawn.append(element("span", { className: "empty", textContent: p.unavailable || "bounds unknown" }));
    return drawn;
  }
  const parts = regions(p);
  if (!parts.length) drawn.append(element("span", { className: "empty", textContent: "empty" }));
  for (const { kind, start, end } of parts) {
    const part = element("button", { type: "button", className: kind },
      element("span", { textContent: number.format(end - start + 1) }));
    part.title = `${SAID[kind]}: ${number.format(start)} to ${number.format(end)}`;
    part.setAttribute("aria-label", `${part.title}. Read from ${start}.`);
    part.dataset.key = `${topic}/${p.partition}/${kind}/${start}`;
    part.style.flex = `${end - start + 1} 1 0`;
    part.addEventListener("click", () => readFrom(topic, p.partition, String(start)));
    drawn.append(part);
  }
  return drawn;
}

function numbers(p) {
  const shown = (value) => (value === null ? "unknown" : number.format(value));
  const list = element("dl", { className: "numbers" });
  const pairs = [
    ["log start", shown(p.log_start_offset)],
    ["local start", shown(p.local_log_start_offset)],
    ["highest remote", p.highest_remote_offset === null ? "none" : number.format(p.highest_remote_offset)],
    ["stable", shown(p.last_stable_offset)],
    ["high watermark", shown(p.high_watermark)],
    ["only local", p.local_only_records === null ? "unknown" : plural(p.local_only_records, "record")],
    ["segments", number.format(p.remote_segments)],
    ["remote", bytes(p.remote_bytes)],
  ];
  if (p.leases.length) pairs.push(["leases", number.format(p.leases.length)]);
  for (const [name, value] of pairs) {
    list.append(element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value })));
  }
  return list;
}

function troubles(p) {
  const said = [
    ...p.orders.map((order) => `order: ${order}`),
    ...p.gaps.map((gap) => `gap: offsets ${number.format(gap.start)} to ${number.format(gap.end)} are in no tier`),
    ...p.degraded.map((reason) => `read only: ${reason}`),
    ...p.holds.map((reason) => `held: ${reason}`),
    ...p.contradictions.map((reason) => `contradiction: ${reason}`),
  ];
  if (p.lineage_unknown) said.push("lineage unknown: some remote offsets cannot be placed");
  if (p.unavailable) said.push(p.unavailable);
  return said.map((textContent) => element("p", { className: "trouble", textContent }));
}

// What only the agent knows, in its own words.
function agentWords(answer) {
  if (answer.silent) return [`the agent of broker ${answer.broker_id} does not answer: nobody knows what it does`];
  const said = answer.status;
  if (!said) return [];
  const words = [
    [said.refused, "not tiered"], [said.not_copied, "not copied"], [said.not_trimmed, "not trimmed"],
    [said.not_expired, "not expired"], [said.not_erased, "not erased"], [said.last_error, "last error"],
  ].filter(([why]) => why).map(([why, what]) => `${what}: ${why}`);
  if (said.copy_lag_segments) {
    words.unshift(`waiting to be copied: ${plural(said.copy_lag_segments, "segment")}, ${bytes(said.copy_lag_bytes)}`);
  }
  return words;
}

async function askAgents(topic, partitions) {
  await Promise.all(partitions.map(async (p) => {
    const key = `${topic}/${p.partition}`;
    const path = `/v1/topics/${encodeURIComponent(topic)}/partitions/${p.partition}/agent`;
    if (!(Date.now() - agents.get(key)?.at < AGENT_MS)) {
      const words = await ask(path).then((answer) => answer.json()).then(agentWords, (error) => [error.message]);
      agents.set(key, { at: Date.now(), words });
    }
    const place = document.querySelector(`[data-agent="${CSS.escape(key)}"]`);
    place?.replaceChildren(...agents.get(key).words.map((textContent) => element("li", { textContent })));
  }));
}

const COLUMNS = [
  { name: "Topic", of: (t) => t.topic, shown: (t) => element("a", { href: `#/${encodeURIComponent(t.topic)}`, textContent: t.topic }) },
  { name: "Trouble", of: (t) => t.partitions_in_trouble + (t.orders.length ? 0.5 : 0), most: true, shown: inWords },
  { name: "Partitions", of: (t) => t.partitions, most: true, number: true },
  { name: "Segments", of: (t) => t.remote_segments, most: true, number: true },
  { name: "Remote records", of: (t) => t.remote_records, most: true, number: true },
  { name: "Broker saves", of: (t) => t.freed_bytes ?? -1, most: true, number: true, shown: (t) => unlessUnknown(t.freed_bytes, bytes) },
  { name: "To copy", of: (t) => t.copy_lag_bytes ?? -1, most: true, number: true, shown: lag },
  { name: "Remote size", of: (t) => t.remote_bytes, most: true, number: true, shown: (t) => bytes(t.remote_bytes) },
];

function unlessUnknown(value, shown) {
  return value === null ? element("span", { className: "quiet", textContent: "unknown" }) : shown(value);
}

function lag(topic) {
  const since = topic.copy_lag_segments ? `, ${duration(topic.copy_lag_seconds)}` : "";
  return unlessUnknown(topic.copy_lag_bytes, (size) => `${bytes(size)}${since}`);
}

function duration(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const [name, size] = units.find(([, each]) => seconds >= each) ?? units[3];
  return `${Math.round(seconds / size)} ${name}`;
}

function inWords(topic) {
  const words = [...topic.orders.map((each) => `order: ${each}`)];
  if (topic.partitions_in_trouble) words.unshift(`${topic.trouble.join(", ")} (${plural(topic.partitions_in_trouble, "partition")})`);
  if (!words.length) return element("span", { className: "quiet", textContent: "none" });
  return element("span", { className: "trouble", textContent: words.join("; ") });
}

function sorted(topics) {
  const { column, turned } = order ?? { column: COLUMNS[1], turned: false };
  const compare = (a, b) => (column.of(a) < column.of(b) ? -1 : column.of(a) > column.of(b) ? 1 : 0);
  const sign = Boolean(column.most) !== turned ? -1 : 1;
  return topics.toSorted((a, b) => sign * compare(a, b) || a.topic.localeCompare(b.topic));
}

function heads() {
  $("topics").tHead.rows[0].replaceChildren(...COLUMNS.map((column) => {
    const button = element("button", { type: "button", textContent: column.name });
    button.addEventListener("click", () => {
      order = { column, turned: order?.column === column && !order.turned };
      drawOverview();
      $("topics").tHead.rows[0].cells[COLUMNS.indexOf(column)].firstChild.focus();
    });
    const head = element("th", { scope: "col", className: column.number ? "number" : "" }, button);
    if (order?.column === column) head.ariaSort = Boolean(column.most) !== order.turned ? "descending" : "ascending";
    return head;
  }));
}

function drawOverview() {
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

function drawTopic(topic) {
  const size = topic.partitions.reduce((sum, p) => sum + p.remote_bytes, 0);
  const count = topic.partitions.length;
  $("topic-title").textContent = `${topic.topic}: ${plural(count, "partition")}, ${bytes(size)} remote`;
  if (firstPartition >= count) firstPartition = 0;
  const one = place().partition;
  const shown = one === undefined
    ? topic.partitions.slice(firstPartition, firstPartition + SHOWN_PARTITIONS)
    : topic.partitions.filter((p) => p.partition === Number(one));
  const focused = document.activeElement?.dataset?.key;
  $("partitions").replaceChildren(...shown.map((p) => {
    const label = element("strong", { textContent: p.partition });
    label.setAttribute("aria-hidden", "true");
    const said = element("ul", { className: "agent" });
    said.dataset.agent = `${topic.topic}/${p.partition}`;
    said.setAttribute("aria-label", `What the agent of partition ${p.partition} says`);
    const known = agents.get(said.dataset.agent)?.words ?? [];
    said.append(...known.map((textContent) => element("li", { textContent })));
    return element("div", { className: "card partition" }, label, bar(topic.topic, p), numbers(p), ...troubles(p), said);
  }));
  askAgents(topic.topic, shown);
  // drawn anew under the keyboard's feet: put the focus back
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  $("pages").hidden = one !== undefined || count <= SHOWN_PARTITIONS;
  $("fewer").disabled = firstPartition === 0;
  $("more").disabled = firstPartition + SHOWN_PARTITIONS >= count;
  $("which").textContent = `${firstPartition} to ${firstPartition + shown.length - 1} of ${number.format(count)}`;
  $("commands").textContent = [
    `tierstate describe ${topic.topic}`, `tierstate pause ${topic.topic}`, `tierstate resume ${topic.topic}`,
    `tierstate verify ${topic.topic}`, `tierstate delete-records ${topic.topic}:${shown[0]?.partition ?? 0} --before OFFSET`,
  ].join("\n");
}

// Where the page is: #/ or #/TOPIC or #/TOPIC/PARTITION/FROM?…, all of it in the address.
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [topic, partition, from] = path.split("/").map(decodeURIComponent);
  return { topic, partition, from, query: new URLSearchParams(query) };
}

async function refresh() {
  const { topic } = place();
  try {
    if (topic) {
      drawTopic(await (await ask(`/v1/topics/${encodeURIComponent(topic)}`)).json());
    } else {
      listed = (await (await ask("/v1/topics")).json()).topics;
      drawOverview();
    }
    say("");
  } catch (error) {
    say(error.said ? error.message : "The gateway does not answer.");
  }
}

async function go() {
  const { topic, partition, from, query } = place();
  $("overview").hidden = Boolean(topic);
  $("topic-page").hidden = !topic;
  $("records").hidden = !topic || partition === undefined;
  $("to-records").hidden = !$("records").hidden;
  if (topic) $("to-records").firstChild.href = `#/${encodeURIComponent(topic)}/0/@0`;
  const steps = [["topics", ""], [topic, topic], [`partition ${partition}`]].slice(0, topic ? (partition === undefined ? 2 : 3) : 1);
  $("path").replaceChildren(...steps.flatMap(([textContent, to], nth) => [
    nth ? " / " : "",
    nth < steps.length - 1 ? element("a", { href: `#/${encodeURIComponent(to)}`, textContent }) : textContent,
  ]));
  document.title = topic ? `${topic} · tierstate` : "tierstate";
  if (topic !== asked?.topic) { firstPartition = 0; show([]); $("outcome").textContent = ""; asked = null; }
  following += 1;
  refresh();
  drawSegments();
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

function say(text) {
  if ($("status").textContent !== text) $("status").textContent = text;
}

function readFrom(topic, partition, from) {
  const query = new URLSearchParams({ count: $("count").value, tier: $("tier").value, isolation: $("isolation").value });
  if ($("view").value !== "text") query.set("view", $("view").value);
  if ($("follow").checked) query.set("follow", "");
  const hash = `#/${[topic, partition, from].map(encodeURIComponent).join("/")}?${query}`;
  if (location.hash === hash) go();
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

const SEGMENT_FIELDS = [
  ["Offsets", (s) => (s.offsets ? `${number.format(s.offsets.start)} to ${number.format(s.offsets.end)}` : "unknown")],
  ["State", (s) => s.state.toLowerCase().replaceAll("_", " ")],
  ["Epochs", (s) => (s.leader_epochs ?? []).map((each) => each.epoch).join(", ")],
  ["Records", (s) => (s.record_count === undefined ? "" : number.format(s.record_count))],
  ["Log", (s) => (s.log_bytes === undefined ? "" : bytes(s.log_bytes))],
  ["Stored", (s) => (s.log_object_bytes === undefined ? "" : bytes(s.log_object_bytes))],
  ["Copied", (s) => (s.copied_at === undefined ? "" : time(s.copied_at))],
  ["Object", (s) => s.object_key ?? s.segment_id],
];

async function drawSegments() {
  const { topic, partition } = place();
  if (!$("segments").open || partition === undefined) return;
  try {
    const path = `/v1/topics/${encodeURIComponent(topic)}/partitions/${encodeURIComponent(partition)}/segments`;
    const { segments } = await (await ask(path)).json();
    $("segments-said").textContent = segments.length > SHOWN_SEGMENTS
      ? `${plural(segments.length, "segment")}, the last ${SHOWN_SEGMENTS}; tierstate segments ${topic}:${partition} prints all.`
      : plural(segments.length, "segment");
    $("segments-table").hidden = !segments.length;
    $("segments-table").tBodies[0].replaceChildren(...segments.slice(-SHOWN_SEGMENTS).reverse().map((segment) =>
      element("tr", {}, ...SEGMENT_FIELDS.map(([name, of]) => {
        const cell = element("td", { className: name === "Object" ? "data" : "", textContent: of(segment) });
        cell.dataset.label = name;
        return cell;
      }))));
  } catch (error) {
    $("segments-said").textContent = error.message;
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

function data(value) {
  if (value === null) return element("td", { className: "data null", textContent: "null" });
  if ($("view").value === "hex") return element("td", { className: "data", textContent: hex(bytesOf(value)) });
  if (typeof value === "object") return element("td", { className: "data", textContent: `base64: ${value.base64}` });
  const textContent = $("view").value === "json" ? indented(value) : value;
  return element("td", { className: "data", textContent });
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

function time(ms) {
  const when = new Date(ms);
  return ms < 0 || Number.isNaN(when.getTime()) ? String(ms) : when.toISOString().replace("T", " ").replace("Z", "");
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
$("find").addEventListener("input", drawOverview);
$("fewer").addEventListener("click", () => { firstPartition -= SHOWN_PARTITIONS; refresh(); });
$("more").addEventListener("click", () => { firstPartition += SHOWN_PARTITIONS; refresh(); });
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value;
  sessionStorage.setItem("tierstate.token", token);
  $("login").hidden = true;
  go();
});
$("view").addEventListener("change", () => show(asked?.shown ?? []));
$("follow").addEventListener("change", follow);
$("segments").addEventListener("toggle", drawSegments);
addEventListener("hashchange", go);
go();
(function live() {
  setTimeout(async () => {
    if ($("live").checked && !document.hidden) await refresh();
    live();
  }, REFRESH_MS);
})();
