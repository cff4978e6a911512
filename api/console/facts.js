// What happened last, as a line of time.

import { $, element, put, time } from "./dom.js";

const SHOWN = 12;
const KINDS = {
  LeaderElected: "elected", SegmentCopyFinished: "copied", SegmentCopyStarted: "copied", LocalTrimIntended: "trimmed",
  SegmentDeleteStarted: "expired", SegmentDeleteFinished: "expired", LogStartAdvanced: "expired",
};
let all = false;

// ``answer``: of /facts; null: not asked yet. ``many``: the partition is said with each.
export function drawFacts(answer, many) {
  const facts = answer?.facts ?? [];
  $("facts-none").hidden = facts.length > 0;
  put("facts-none", !answer ? "Asking…" : answer.error ?? "The tier-state topic has nothing to tell.");
  let day = "";
  $("facts").replaceChildren(...(all ? facts : facts.slice(0, SHOWN)).map((fact) => {
    const when = time(fact.at), date = when.slice(0, 10);
    const made = element("li", { className: KINDS[fact.fact] ?? "told" },
      element("time", { dateTime: new Date(fact.at).toISOString(), textContent: date === day ? when.slice(11, 16) : `${date} ${when.slice(11, 16)}` }),
      element("span", { textContent: fact.said }));
    if (many) made.append(element("span", { className: "quiet", textContent: `partition ${fact.partition}` }));
    day = date;
    return made;
  }));
  $("all-facts").hidden = all || facts.length <= SHOWN;
  $("all-facts").onclick = () => { all = true; drawFacts(answer, many); };
}
