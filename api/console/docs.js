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

function parameters(call, all) {
  const body = element("tbody");
  for (const each of call.parameters || []) {
    const limit = each.schema.default === undefined ? (each.required ? "required" : "") : `default ${each.schema.default}`;
    body.append(element("tr", {},
      element("td", {}, element("code", { textContent: each.name })),
      element("td", { textContent: each.in }),
      element("td", { textContent: type(each.schema, all) }),
      element("td", { textContent: limit }),
      element("td", { textContent: each.description || each.schema.description || "" })));
  }
  const head = element("thead", {}, element("tr", {}, ...["Parameter", "In", "Type", "", "Meaning"].map(
    (textContent) => element("th", { textContent, scope: "col" }))));
  return element("div", { className: "scroll" }, element("table", {}, head, body));
}

async function draw() {
  const said = await (await fetch("/openapi.json")).json();
  document.getElementById("about").textContent = `${said.info.description} Version ${said.info.version}.`;
  const calls = document.getElementById("calls");
  for (const [path, methods] of Object.entries(said.paths)) {
    for (const [method, call] of Object.entries(methods)) {
      const types = Object.keys(call.responses["200"]?.content || {});
      const made = element("article", { className: "card" },
        element("h3", {}, element("code", { textContent: `${method.toUpperCase()} ${path}` })),
        element("p", { textContent: call.summary }),
        element("p", { className: "quiet", textContent: `Answers ${types.join(", ")}` }));
      if (call.parameters?.length) made.append(parameters(call, said.components.schemas));
      calls.append(made);
    }
  }
}

draw().catch(() => { document.getElementById("status").textContent = "openapi.json cannot be read."; });
