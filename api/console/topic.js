// One topic: its partitions as bars, and what its agents say.

import { ask } from "./ask.js";
import { $, bytes, element, number, plural } from "./dom.js";
import { place } from "./place.js";
import { readFrom } from "./records.js";

const SHOWN_PARTITIONS = 12;
const AGENT_MS = 15000;
const agents = new Map();  // TOPIC/PARTITION: when its agent was asked, and what it said
let firstPartition = 0;
let current = null;  // the topic on the page

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
    const spot = document.querySelector(`[data-agent="${CSS.escape(key)}"]`);
    spot?.replaceChildren(...agents.get(key).words.map((textContent) => element("li", { textContent })));
  }));
}

export function drawTopic(topic) {
  current = topic;
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

export function leaveTopic() {
  firstPartition = 0;
  current = null;
}

function turn(by) {
  firstPartition += by;
  if (current) drawTopic(current);
}

$("fewer").addEventListener("click", () => turn(-SHOWN_PARTITIONS));
$("more").addEventListener("click", () => turn(SHOWN_PARTITIONS));
