// The segments of a partition.

import { ask } from "./ask.js";
import { $, bytes, element, number, plural, put, time } from "./dom.js";
import { place } from "./place.js";

const SHOWN_SEGMENTS = 500;

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

export async function drawSegments() {
  const { topic, partition } = place();
  if (!$("segments").open || partition === undefined) return;
  try {
    const path = `/v1/topics/${encodeURIComponent(topic)}/partitions/${encodeURIComponent(partition)}/segments`;
    const { segments } = await (await ask(path)).json();
    put("segments-said", segments.length > SHOWN_SEGMENTS
      ? `${plural(segments.length, "segment")}, the last ${SHOWN_SEGMENTS}; tierstate segments ${topic}:${partition} prints all.`
      : plural(segments.length, "segment"));
    $("segments-table").hidden = !segments.length;
    $("segments-table").tBodies[0].replaceChildren(...segments.slice(-SHOWN_SEGMENTS).reverse().map((segment) =>
      element("tr", {}, ...SEGMENT_FIELDS.map(([name, of]) => {
        const cell = element("td", { className: name === "Object" ? "data" : "", textContent: of(segment) });
        cell.dataset.label = name;
        return cell;
      }))));
  } catch (error) {
    put("segments-said", error.message);
  }
}

$("segments").addEventListener("toggle", drawSegments);
