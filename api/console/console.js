// The console: which page the address asks for. Each page has a module.

import { aged, ask, useToken } from "./ask.js";
import { $, element, say, visible } from "./dom.js";
import { drawOverview } from "./overview.js";
import { place } from "./place.js";
import { openRecords } from "./records.js";
import { drawSegments } from "./segments.js";
import { drawTables } from "./tables.js";
import { leaveTopic, refreshTopic } from "./topic.js";

const REFRESH_MS = 5000;
let shown;  // the topic of the page

async function refresh() {
  const { topic, tables } = place();
  try {
    const answer = topic ? await refreshTopic() : await ask(tables ? "/v1/tables" : "/v1/topics");
    if (tables) drawTables((await answer.json()).tables);
    else if (!topic) drawOverview((await answer.json()).topics);
    say(aged(answer));
  } catch (error) {
    say(error.said ? error.message : "The gateway does not answer.");
  }
}

async function go() {
  const { topic, partition, tables } = place();
  $("overview").hidden = Boolean(topic || tables);
  $("tables").hidden = !tables;
  $("topic-page").hidden = $("topic-more").hidden = !topic;
  $("records").hidden = !topic || partition === undefined;
  $("to-records").hidden = !$("records").hidden;
  if (topic) $("to-records").firstChild.href = `#/${encodeURIComponent(topic)}/0/@0`;
  const within = tables ? [["tables"]] : [[topic, topic], [`partition ${partition}`]].slice(0, topic ? (partition === undefined ? 1 : 2) : 0);
  const steps = [["topics", ""], ...within];
  $("path").replaceChildren(...steps.flatMap(([textContent, to], nth) => [
    nth ? " / " : "",
    nth < steps.length - 1 ? element("a", { href: `#/${encodeURIComponent(to)}`, textContent }) : visible(textContent),
  ]));
  document.title = tables ? "tables · tierstate" : topic ? `${visible(topic)} · tierstate` : "tierstate";
  if (topic !== shown) leaveTopic();
  shown = topic;
  refresh();
  drawSegments();
  await openRecords();
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken($("token").value);
  $("login").hidden = true;
  go();
});

addEventListener("hashchange", go);
go();
(function live() {
  setTimeout(async () => {
    if ($("live").checked && !document.hidden) await refresh();
    live();
  }, REFRESH_MS);
})();
