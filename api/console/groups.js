// Who reads a topic, and in which tier it stands.

import { $, element, number, plural, spans } from "./dom.js";

const SHOWN = 20;

// ``answer``: of /groups; null: not asked yet.
export function drawGroups(answer) {
  const of = Map.groupBy(answer?.groups ?? [], (each) => each.group_id);
  const rows = [...of].slice(0, SHOWN).map(([group, standings]) => {
    const far = standings.filter((each) => each.in_remote_tier);
    const worst = standings[0];
    const where = far.length
      ? `this group stands in the remote tier, on partition${far.length === 1 ? "" : "s"} ${spans(far.map((each) => each.partition))}`
      : standings.length > 1 && worst.behind ? `partition ${worst.partition}, the furthest behind, ${worst.said}` : worst.said;
    const tier = element("span", { className: far.length ? "tag remote" : "tag local", textContent: far.length ? "remote" : "local" });
    const behind = standings.some((each) => each.behind === null) ? "unknown" : number.format(standings.reduce((sum, each) => sum + each.behind, 0));
    const cells = [
      element("th", { scope: "row", textContent: group }),
      element("td", { title: `partition ${worst.partition}: ${worst.said}` }, ...(worst.in_remote_tier === null ? [where] : [tier, ` ${where}`])),
      element("td", { className: "number", textContent: behind }),
    ];
    cells.forEach((cell, nth) => { cell.dataset.label = ["Group", "Stands", "Offsets behind, in sum"][nth]; });
    return element("tr", {}, ...cells);
  });
  $("groups-table").hidden = !rows.length;
  $("groups-table").tBodies[0].replaceChildren(...rows);
  const notes = [...(answer?.unknown ?? [])];
  if (!answer) notes.push("Asking the brokers…");
  else if (!rows.length && !notes.length) notes.push("No group that you may see has committed an offset here.");
  if (of.size > SHOWN) notes.push(`and ${plural(of.size - SHOWN, "more group")}, less far behind`);
  if (answer?.left_out) notes.push(`${plural(answer.left_out, "more standing")} not shown`);
  $("groups-notes").replaceChildren(...notes.map((textContent) => element("p", { className: "quiet", textContent })));
}
