// A bar a partition, all on one axis: which tier has what, who holds it, and where consumer groups stand.

import { axisOf, timeOf } from "./axis.js";
import { $, bytes, element, number, plural, time, visible } from "./dom.js";
import { readFrom } from "./records.js";

const SAID = { remote: "remote", both: "in both tiers", local: "local", gap: "gap, in no tier" };
const LANES = 3;
const CHIP_PX = 15;  // beside its letters
const LETTER_PX = 6.6;
let drawn = null;  // what is on the page, to draw it anew when the window changes

// The log of a partition as regions, ascending: who has which offsets.
export function regions(p) {
  if (p.local_log_start_offset === null) return p.copied_to < p.log_start_offset ? [] : [{ kind: "remote", start: p.log_start_offset, end: p.copied_to }];
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
  add("both", local, both);
  add("local", Math.max(both + 1, local), p.high_watermark - 1);
  return found;
}

// While no broker answers, a log ends with what is copied of it without a gap.
const endOf = (p) => p.high_watermark ?? p.copied_to + 1;
const known = (p) => p.log_start_offset !== null && (p.high_watermark !== null || p.remote_segments > 0);

// ``times``, ``groups``: by partition. ``kind``: of the axis. ``common``: troubles that are said elsewhere.
export function drawBars(topic, partitions, { times, groups, kind, common }) {
  drawn = { topic, partitions, times, groups, kind, common };
  const placed = (p, offset) => (kind === "time" ? timeOf(times.get(p.partition), offset) : offset);
  const ends = partitions.filter(known).flatMap((p) => [placed(p, p.log_start_offset), placed(p, endOf(p))]);
  const axis = axisOf(kind, ends);
  const focused = document.activeElement?.dataset?.key;
  $("partitions").replaceChildren(...partitions.map((p) =>
    row(topic, p, { common, groups: groups.get(p.partition) ?? [], x: (offset) => axis.at(placed(p, offset)),
      placed: kind === "offset" || Boolean(times.get(p.partition)?.length),
      untimed: times.has(p.partition) ? "its times are unknown; its offsets are not" : "asking for its times…" })));
  drawTicks(axis);
  // drawn anew under the keyboard's feet: put the focus back
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function drawTicks(axis) {
  const width = $("ticks").clientWidth;
  const marks = axis.ticks(width);
  $("axis-said").textContent = axis.empty ? "" : axis.kind === "time" ? "UTC" : "offset";
  $("ticks").replaceChildren(...marks.map(({ at, text }) => {
    const tick = element("span", { textContent: text });
    tick.style.left = `${at * 100}%`;
    // a text at an end stays within
    if (at * width < 24) tick.className = "first";
    if ((1 - at) * width < 24) tick.className = "last";
    return tick;
  }));
  $("grid").replaceChildren(...marks.map(({ at }) => {
    const line = element("i");
    line.style.left = `${at * 100}%`;
    return line;
  }));
}

function row(topic, p, { common, groups, x, placed, untimed }) {
  const label = element("a", { className: "number", href: `#/${encodeURIComponent(topic)}/${p.partition}/@0`, textContent: p.partition });
  label.dataset.key = `${topic}/${p.partition}`;
  label.setAttribute("aria-label", `Records of partition ${p.partition}`);
  const track = element("div", { className: "track" });
  const lane = element("div", { className: "lane" }, track);
  if (!known(p)) track.append(element("span", { className: "empty", textContent: p.unavailable || "bounds unknown" }));
  else if (!placed) track.append(element("span", { className: "empty", textContent: untimed }));
  else {
    const parts = regions(p);
    if (!parts.length) track.append(element("span", { className: "empty", textContent: "empty" }));
    track.append(...parts.map((part) => region(topic, p, part, x)));
    track.append(...p.leases.map((lease) => leaseOf(lease, x)));
    if (groups.length) lane.append(...standings(p, groups, x, track));
  }
  const size = element("span", { className: "size quiet", textContent: `${plural(p.remote_segments, "segment")}, ${bytes(p.remote_bytes)}` });
  const made = element("div", { className: "partition" }, label, lane, size,
    ...troubles(p).filter((each) => !common.includes(each)).map((textContent) => element("p", { className: "trouble", textContent })));
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", `Partition ${p.partition} of ${topic}`);
  return made;
}

function region(topic, p, { kind, start, end }, x) {
  const part = element("button", { type: "button", className: kind });
  part.title = `${SAID[kind]}: ${number.format(start)} to ${number.format(end)}`;
  part.setAttribute("aria-label", `${part.title}. Read from ${start}.`);
  part.dataset.key = `${topic}/${p.partition}/${kind}/${start}`;
  const left = x(start);
  part.style.left = `${left * 100}%`;
  part.style.width = `${Math.max(0, x(end + 1) - left) * 100}%`;
  part.addEventListener("click", () => readFrom(topic, p.partition, String(start)));
  return part;
}

function leaseOf(lease, x) {
  const { start, end } = lease.offsets;
  const said = visible(`leased to ${lease.holder} until ${time(lease.expires_at)}: ${number.format(start)} to ${number.format(end)}`);
  const made = element("span", { className: "lease", title: said });
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", said);
  const left = x(start);
  made.style.left = `${left * 100}%`;
  made.style.width = `${(x(end + 1) - left) * 100}%`;
  return made;
}

// A mark on the bar and its group's name below it; names that would lie upon each other take further lanes.
function standings(p, groups, x, track) {
  const width = $("ticks").clientWidth || 600;
  const ends = [];
  const names = element("ul", { className: "standings" });
  names.setAttribute("aria-label", `Consumer groups on partition ${p.partition}`);
  let left = 0;
  for (const each of [...groups].sort((a, b) => Number(b.in_remote_tier) - Number(a.in_remote_tier) || b.behind - a.behind)) {
    const at = x(each.committed_offset);
    const size = Math.min(CHIP_PX + LETTER_PX * each.group_id.length, width / 2);
    const begins = Math.min(at * width, width - size);
    let lane = ends.findIndex((taken) => taken.every(([from, to]) => begins + size < from || begins > to));
    if (lane < 0) lane = ends.length;
    if (lane >= LANES) { left += 1; continue; }
    (ends[lane] ??= []).push([begins, begins + size]);
    const mark = element("i", { className: each.in_remote_tier ? "mark far" : "mark" });
    mark.style.left = `${at * 100}%`;
    track.append(mark);
    const name = element("li", { className: each.in_remote_tier ? "far" : "", textContent: each.group_id, title: `${each.group_id} ${each.said}` });
    name.style.left = `${begins}px`;
    name.style.top = `${lane * 1.25}rem`;
    names.append(name);
  }
  names.style.height = `${ends.length * 1.25}rem`;
  return left ? [names, element("p", { className: "quiet small", textContent: `and ${plural(left, "more group")}` })] : [names];
}

export function troubles(p) {
  const said = [
    ...p.orders.map((order) => `order: ${order}`),
    ...p.gaps.map((gap) => `gap: offsets ${number.format(gap.start)} to ${number.format(gap.end)} are in no tier`),
    ...p.degraded.map((reason) => `read only: ${reason}`),
    ...p.holds.map((reason) => `held: ${reason}`),
    ...p.contradictions.map((reason) => `contradiction: ${reason}`),
  ];
  if (p.facts_lost) said.push(`FACTS LOST: ${p.facts_lost}`);
  if (p.lineage_unknown) said.push("lineage unknown: some remote offsets cannot be placed");
  if (p.unavailable && known(p)) said.push(p.unavailable);
  return said;
}

let waiting = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => { if (drawn) drawBars(drawn.topic, drawn.partitions, drawn); });
});
