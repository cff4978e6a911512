"use strict";
// Draws what /v1 says. Data only ever becomes text (textContent), never markup.

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const REFRESH_MS = 5000;
let token = sessionStorage.getItem("tierstate.token");
let following = null;

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
    part.addEventListener("click", () => readFrom(topic, p.partition, start));
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
    ["copy lag", shown(p.copy_lag)],
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
    ...p.gaps.map((gap) => `gap: offsets ${number.format(gap.start)} to ${number.format(gap.end)} are in no tier`),
    ...p.degraded.map((reason) => `read only: ${reason}`),
    ...p.holds.map((reason) => `held: ${reason}`),
    ...p.contradictions.map((reason) => `contradiction: ${reason}`),
  ];
  if (p.lineage_unknown) said.push("lineage unknown: some remote offsets cannot be placed");
  if (p.unavailable) said.push(p.unavailable);
  return said.map((textContent) => element("p", { className: "trouble", textContent }));
}

function card(topic) {
  const size = topic.partitions.reduce((sum, p) => sum + p.remote_bytes, 0);
  const count = topic.partitions.length;
  const made = element("article", { className: "card" },
    element("div", { className: "row" },
      element("h3", { textContent: topic.topic }),
      element("p", { className: "quiet", textContent: `${plural(count, "partition")} · ${bytes(size)} remote` })));
  for (const p of topic.partitions) {
    const label = element("strong", { textContent: p.partition });
    label.setAttribute("aria-hidden", "true");
    made.append(element("div", { className: "partition" }, label, bar(topic.topic, p), numbers(p), ...troubles(p)));
  }
  return made;
}

async function refresh() {
  try {
    const { topics } = await (await ask("/v1/topics")).json();
    const all = await Promise.all(topics.map(async (t) => (await ask(`/v1/topics/${encodeURIComponent(t.topic)}`)).json()));
    const focused = document.activeElement?.dataset?.key;
    $("topics").replaceChildren(...all.map(card));
    if (!all.length) $("topics").append(element("p", { className: "card quiet", textContent: "No tiered topic yet." }));
    // drawn anew under the keyboard's feet: put the focus back
    if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    $("topic-names").replaceChildren(...topics.map((t) => element("option", { value: t.topic })));
    if (!$("topic").value && topics.length) $("topic").value = topics[0].topic;
    const size = topics.reduce((sum, t) => sum + t.remote_bytes, 0);
    const segments = topics.reduce((sum, t) => sum + t.remote_segments, 0);
    $("totals").textContent =
      `${plural(topics.length, "topic")} · ${plural(segments, "segment")} · ${bytes(size)} in the remote tier`;
    say("");
  } catch (error) {
    say(error.said ? error.message : "The gateway does not answer.");
  }
}

function say(text) {
  if ($("status").textContent !== text) $("status").textContent = text;
}

function readFrom(topic, partition, offset) {
  $("topic").value = topic;
  $("partition").value = partition;
  $("offset").value = offset;
  document.querySelector("input[name=from][value=offset]").checked = true;
  chooseFrom();
  $("records").scrollIntoView({ behavior: "smooth" });
  read({ offset });
}

function where() {
  if (document.querySelector("input[name=from]:checked").value === "offset") return { offset: $("offset").value };
  return { timestamp: new Date($("time").value).getTime() };
}

async function read(from) {
  const query = new URLSearchParams({
    ...from, max_records: $("count").value, tier: $("tier").value, isolation_level: $("isolation").value,
  });
  const path = `/v1/topics/${encodeURIComponent($("topic").value)}/partitions/${encodeURIComponent($("partition").value)}`;
  $("outcome").textContent = "Reading…";
  try {
    const answer = await ask(`${path}/records?${query}`, "application/x-ndjson");
    const lines = (await answer.text()).split("\n").filter(Boolean).map(JSON.parse);
    following = answer.headers.get("x-next-offset");
    const place = [$("topic").value, $("partition").value, from.offset ?? lines[0]?.offset ?? following];
    history.replaceState(null, "", `#${place.map(encodeURIComponent).join("/")}`);
    show(lines);
    const end = answer.headers.get("x-high-watermark");
    $("outcome").textContent =
      `${plural(lines.length, "record")} from the ${answer.headers.get("x-tier")} tier; ` +
      `next offset ${number.format(following)} of ${number.format(end)}.`;
    $("next").disabled = false;
  } catch (error) {
    $("next").disabled = true;
    show([]);
    $("outcome").textContent = error.message;
  }
}

function data(value) {
  if (value === null) return element("td", { className: "data null", textContent: "null" });
  if (typeof value === "object") return element("td", { className: "data", textContent: `base64: ${value.base64}` });
  return element("td", { className: "data", textContent: value });
}

function show(records) {
  $("table").hidden = !records.length;
  $("table").tBodies[0].replaceChildren(...records.map((record) => {
    const headers = record.headers.map((h) => `${h.key}=${typeof h.value === "object" ? h.value?.base64 ?? "null" : h.value}`);
    return element("tr", {},
      element("td", { className: "number", textContent: record.offset }),
      element("td", { className: "time", textContent: time(record.timestamp) }),
      element("td", {}, element("span", { className: `tag ${record.tier}`, textContent: record.tier })),
      data(record.key), data(record.value),
      element("td", { className: "data", textContent: headers.join("\n") }));
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
$("read").addEventListener("submit", (event) => { event.preventDefault(); read(where()); });
$("next").addEventListener("click", () => read({ offset: following }));
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value;
  sessionStorage.setItem("tierstate.token", token);
  $("login").hidden = true;
  refresh();
});
const [linkedTopic, linkedPartition, linkedOffset] = location.hash.slice(1).split("/").map(decodeURIComponent);
if (linkedOffset) readFrom(linkedTopic, linkedPartition, linkedOffset);
(async function live() {
  if ($("live").checked && !document.hidden || !$("topics").children.length) await refresh();
  setTimeout(live, REFRESH_MS);
})();
