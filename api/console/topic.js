// One topic: its bars, what its agents say, who reads it, what happened last.

import { ask } from "./ask.js";
import { drawBars, troubles } from "./bars.js";
import { $, bytes, duration, element, number, plural, put, spans } from "./dom.js";
import { drawFacts } from "./facts.js";
import { drawGroups } from "./groups.js";
import { place } from "./place.js";

const SHOWN_PARTITIONS = 12;
const SLOW_MS = 15000;  // agents, groups, times and facts are asked so seldom
let first = 0;  // place of the first partition on the page among those that are wanted
let page = null;  // what is on the page

const fresh = (topic) => ({ topic, asked: new Map(), times: new Map(), groups: null, agents: new Map(), facts: null, drawn: "" });

// At most every SLOW_MS for each ``key``; an error becomes words where its answer would be.
function slowly(key, path, take) {
  const { asked } = page, mine = page;
  if (Date.now() - (asked.get(key) ?? 0) < SLOW_MS) return;
  asked.set(key, Date.now());
  ask(path).then((answer) => answer.json()).then(
    (answer) => { if (page === mine) { take(answer, null); draw(); } },
    (error) => { if (page === mine) { take(null, error.message); draw(); } },
  );
}

// Each card says of which partitions it is: those of the page, not all of the topic.
function titles(on, of) {
  put("groups-title", `Consumer groups${on}`);
  put("reasons-title", `What agents say${of}`);
  put("facts-title", `What happened last${on}`);
}

// Nothing of the topic before stays while this one is asked for.
function begin(topic) {
  page = fresh(topic);
  put("topic-title", topic);
  for (const id of ["topic-sizes", "topic-trouble"]) $(id).textContent = "";
  for (const id of ["partitions", "ticks", "grid", "reasons", "retention", "commands"]) $(id).replaceChildren();
  $("numbers").tBodies[0].replaceChildren();
  titles("", "");
  drawGroups(null);
  drawFacts(null);
}

export async function refreshTopic() {
  const { topic, partition } = place();
  if (page?.topic !== topic) begin(topic);
  const mine = page, path = `/v1/topics/${encodeURIComponent(topic)}`;
  const answer = await ask(`${path}/summary`);
  mine.summary = await answer.json();
  const wanted = partition === undefined ? wantedPartitions(mine.summary) : [Number(partition)];
  if (first >= wanted.length) first = 0;
  const numbers = wanted.slice(first, first + SHOWN_PARTITIONS);
  const query = new URLSearchParams(numbers.map((each) => ["partition", each]));
  const found = numbers.length ? (await (await ask(`${path}/partitions?${query}`)).json()).partitions : [];
  if (page !== mine || place().topic !== topic) return answer;
  if (mine.query !== String(query)) Object.assign(mine, { asked: new Map(), groups: null, facts: null });
  Object.assign(mine, { query: String(query), wanted, partitions: found, alone: partition !== undefined });
  draw();
  if (!numbers.length) return answer;
  slowly("times", `${path}/times?${query}`, (answer) => {
    const known = answer?.partitions ?? numbers.map((each) => ({ partition: each, times: mine.times.get(each) ?? [] }));
    for (const each of known) mine.times.set(each.partition, each.times);
  });
  slowly("groups", `${path}/groups?${query}`, (answer, error) => { mine.groups = answer ?? { groups: [], unknown: [error], left_out: 0 }; });
  slowly("facts", `${path}/facts?${query}`, (answer, error) => { mine.facts = answer ?? { facts: [], error }; });
  for (const number of numbers) {
    slowly(`agent ${number}`, `${path}/partitions/${number}/agent`, (answer, error) =>
      mine.agents.set(number, answer ?? { status: null, error }));
  }
  return answer;
}

function wantedPartitions(summary) {
  if ($("in-trouble").checked && summary.in_trouble.length) return summary.in_trouble;
  return Array.from({ length: summary.partitions }, (_, each) => each);
}

// Only where something changed: nothing moves under a reader's eyes.
function draw() {
  const { topic, summary, partitions, times, groups, agents, facts } = page;
  if (!partitions) return;
  const kind = document.querySelector("input[name=axis]:checked").value;
  const now = JSON.stringify([topic, summary, partitions, [...times], groups, [...agents], facts, kind, first]);
  if (now === page.drawn) return;
  page.drawn = now;
  const ill = partitions.map(troubles);  // what stands everywhere is said once
  const common = ill.length > 1 ? ill[0].filter((each) => ill.every((said) => said.includes(each))) : [];
  drawHead(topic, summary, common);
  const standing = Map.groupBy(groups?.groups ?? [], (each) => each.partition);
  drawBars(topic, partitions, { times, groups: standing, kind, common });
  drawPages();
  const shown = partitions.map((p) => p.partition);
  const of = shown.length === 1 ? `partition ${shown[0]}` : `partitions ${spans(shown)}`;
  if (shown.length) titles(` on ${of}`, ` of ${of}`);
  drawReasons(shown);
  drawGroups(groups);
  drawFacts(facts, summary.partitions > 1);
  drawRetention(shown);
  drawNumbers(partitions);
  drawCommands(topic, partitions[0]?.partition ?? 0);
}

// The summary of one partition. Its agent reports the local tier and what waits to be copied; else they are null.
function summaryOf(p) {
  const said = page.agents.get(p.partition)?.status;
  return {
    remote_bytes: p.remote_bytes, local_log_bytes: said?.local_log_bytes ?? null, freed_bytes: null,
    copy_lag_segments: said?.copy_lag_segments ?? null, copy_lag_bytes: said?.copy_lag_bytes, copy_lag_seconds: said?.copy_lag_s,
    partitions_in_trouble: 0,
  };
}

function drawHead(topic, ofTopic, common) {
  const summary = page.alone ? summaryOf(page.partitions[0]) : ofTopic;
  const title = page.alone ? `${topic}: partition ${place().partition}` : `${topic}: ${plural(ofTopic.partitions, "partition")}`;
  put("topic-title", title);
  const words = [`${bytes(summary.remote_bytes)} remote`];
  if (summary.local_log_bytes !== null) words.push(`${bytes(summary.local_log_bytes)} local`);
  if (summary.freed_bytes !== null) words.push(`the broker saves ${bytes(summary.freed_bytes)}`);
  if (summary.copy_lag_segments) {
    const waits = `${plural(summary.copy_lag_segments, "segment")}, ${bytes(summary.copy_lag_bytes)}, for ${duration(summary.copy_lag_seconds)}`;
    words.push(`waiting to be copied: ${waits}`);
  } else if (summary.copy_lag_segments === 0) words.push("all rolled segments are copied");
  put("topic-sizes", words.join(" · "));
  const ill = summary.partitions_in_trouble;
  put("topic-trouble", [...(ill ? [`${summary.trouble.join(", ")} (${plural(ill, "partition")})`] : []), ...common].join("; "));
}

function drawPages() {
  const { wanted, partitions, summary, alone } = page;
  $("pages").hidden = alone || (summary.partitions <= SHOWN_PARTITIONS && !$("in-trouble").checked);
  $("fewer").disabled = first === 0;
  $("more").disabled = first + SHOWN_PARTITIONS >= wanted.length;
  const numbers = partitions.map((p) => p.partition);
  $("which").textContent = numbers.length ? `${spans(numbers)} of ${number.format(summary.partitions)}` : "none";
  $("in-trouble").disabled = !summary.in_trouble.length && !$("in-trouble").checked;
  $("in-trouble-said").textContent = `In trouble (${number.format(summary.partitions_in_trouble)})`;
  $("go-to-partition").max = summary.partitions - 1;
}

// What only an agent knows, in its own words.
function agentWords(answer) {
  if (answer.error) return [answer.error];
  if (answer.silent) return [`the agent for broker ${answer.broker_id} (${answer.address}) did not answer`];
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

// What several partitions say in the same words is said once.
function drawReasons(shown) {
  const said = new Map();
  for (const each of shown) {
    for (const words of agentWords(page.agents.get(each) ?? { status: null })) said.set(words, [...(said.get(words) ?? []), each]);
  }
  const asked = shown.every((each) => page.agents.has(each));
  $("reasons-none").hidden = said.size > 0;
  $("reasons-none").textContent = asked ? "Nothing is held back." : "Asking the agents…";
  $("reasons").replaceChildren(...[...said].map(([words, numbers]) => {
    const brokers = [...new Set(numbers.map((each) => page.agents.get(each).broker_id ?? null))].filter((each) => each !== null);
    const from = [];
    if (shown.length > 1) from.push(`partition${numbers.length === 1 ? "" : "s"} ${spans(numbers)}`);
    if (brokers.length) from.push(`broker${brokers.length === 1 ? "" : "s"} ${brokers.join(", ")}`);
    const where = element("span", { className: "quiet", textContent: from.length ? ` ${from.join(", ")}` : "" });
    return element("li", {}, words, where);
  }));
}

function limit(ms, size) {
  const words = [ms >= 0 ? duration(ms / 1000) : null, size >= 0 ? bytes(size) : null].filter(Boolean);
  return words.length ? words.join(" or ") : "without limit";
}

function drawRetention(shown) {
  const said = shown.map((each) => page.agents.get(each)?.status).find((each) => each?.retention_ms !== null && each?.retention_ms !== undefined);
  const leases = page.partitions.flatMap((p) => p.leases);
  const pairs = [
    ["Both tiers", said ? limit(said.retention_ms, said.retention_bytes) : "its agent has not said it"],
    ["Local tier", said ? limit(said.local_retention_ms, said.local_retention_bytes) : "its agent has not said it"],
    ["Orders", page.summary.orders.join("; ") || "none"],
    ["Leases", leases.length ? `${number.format(leases.length)}: ${[...new Set(leases.map((each) => each.holder))].slice(0, 5).join(", ")}` : "none"],
  ];
  $("retention").replaceChildren(...pairs.map(([name, value]) =>
    element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }))));
}

const NUMBERS = [
  ["Partition", (p) => p.partition], ["Log start", (p) => p.log_start_offset], ["Local start", (p) => p.local_log_start_offset],
  ["Highest remote", (p) => p.highest_remote_offset ?? "none"], ["Stable", (p) => p.last_stable_offset],
  ["High watermark", (p) => p.high_watermark], ["Only local", (p) => p.local_only_records],
  ["Segments", (p) => p.remote_segments], ["Remote", (p) => bytes(p.remote_bytes)], ["Term", (p) => p.term ?? "none"],
];

function drawNumbers(partitions) {
  $("numbers").tHead.rows[0].replaceChildren(...NUMBERS.map(([textContent]) => element("th", { scope: "col", className: "number", textContent })));
  $("numbers").tBodies[0].replaceChildren(...partitions.map((p) => element("tr", {}, ...NUMBERS.map(([name, of]) => {
    const value = of(p);
    const cell = element("td", { className: "number", textContent: value === null ? "unknown" : typeof value === "number" ? number.format(value) : value });
    cell.dataset.label = name;
    return cell;
  }))));
}

function drawCommands(topic, partition) {
  put("commands", [
    `tierstate describe ${topic}`, `tierstate pause ${topic}`, `tierstate resume ${topic}`,
    `tierstate verify ${topic}`, `tierstate delete-records ${topic}:${partition} --before OFFSET`,
  ].join("\n"));
}

export function leaveTopic() {
  first = 0;
  page = null;
  $("in-trouble").checked = false;
}

function turn(to) {
  first = Math.max(0, to);
  dispatchEvent(new Event("hashchange"));
}

$("fewer").addEventListener("click", () => turn(first - SHOWN_PARTITIONS));
$("more").addEventListener("click", () => turn(first + SHOWN_PARTITIONS));
$("in-trouble").addEventListener("change", () => turn(0));
$("go-to").addEventListener("submit", (event) => {
  event.preventDefault();
  $("in-trouble").checked = false;
  turn(Number($("go-to-partition").value));
});
const kept = sessionStorage.getItem("tierstate.axis");
for (const radio of document.querySelectorAll("input[name=axis]")) {
  radio.checked = kept ? radio.value === kept : radio.checked;
  radio.addEventListener("change", () => { sessionStorage.setItem("tierstate.axis", radio.value); if (page) draw(); });
}
