"use strict";
// Draws openapi.json: one card a call.

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function type(schema, all) {
  if (!schema) return "";
  if (schema.$ref) return type(all[schema.$ref.split("/").pop()], all);
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.anyOf) return schema.anyOf.filter((each) => each.type !== "null").map((each) => type(each, all)).join(" or ");
  return schema.type || "";
}

function parameters(name, call, all) {
  const body = element("tbody");
  for (const each of call.parameters || []) {
    const limit = each.schema.default === undefined ? (each.required ? "required" : "") : String(each.schema.default);
    body.append(element("tr", {},
      element("td", {}, element("code", { textContent: each.name })),
      element("td", { textContent: each.in }),
      element("td", { textContent: type(each.schema, all) }),
      element("td", { textContent: limit }),
      element("td", { textContent: each.description || each.schema.description || "" })));
  }
  const head = element("thead", {}, element("tr", {}, ...["Parameter", "In", "Type", "Default", "Meaning"].map(
    (textContent) => element("th", { textContent, scope: "col" }))));
  const scroll = element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `Parameters of ${name}` });
  scroll.append(element("table", {}, head, body));
  return scroll;
}

async function draw() {
  const said = await (await fetch("/openapi.json")).json();
  document.getElementById("about").textContent = `${said.info.description} Version ${said.info.version}.`;
  const calls = document.getElementById("calls");
  for (const [path, methods] of Object.entries(said.paths)) {
    for (const [method, call] of Object.entries(methods)) {
      const name = `${method.toUpperCase()} ${path}`;
      const types = Object.keys(call.responses["200"]?.content || {});
      const made = element("article", { className: "card" },
        element("h2", {}, element("code", { textContent: name })),
        element("p", { textContent: call.summary }),
        element("p", { className: "quiet", textContent: `Answers ${types.join(", ")}` }));
      if (call.parameters?.length) made.append(parameters(name, call, said.components.schemas));
      calls.append(made);
    }
  }
}

draw().catch(() => { document.getElementById("status").textContent = "openapi.json cannot be read."; });
