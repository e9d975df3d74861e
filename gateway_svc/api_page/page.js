// Shows each operation of openapi.json. Text goes in as text, never as markup.
"use strict";

function element(name, text, ...children) {
  const made = document.createElement(name);
  made.append(text, ...children);
  return made;
}

// Names between backticks are code.
function withCode(text) {
  return text.split("`").map((part, place) => (place % 2 ? element("code", part) : part));
}

function shown(title, schema) {
  return [element("h4", title), element("pre", JSON.stringify(schema, null, 2))];
}

function operation(path, method, described) {
  const details = element("details", "");
  const code = element("code", `${method.toUpperCase()} ${path}`);
  details.append(element("summary", "", code, " ", ...withCode(described.summary ?? "")));
  for (const each of described.parameters ?? []) {
    details.append(element("p", "", element("code", each.name), ` (${each.in}): ${each.description ?? ""}`));
  }
  for (const [type, body] of Object.entries(described.requestBody?.content ?? {})) {
    details.append(...shown(`Request, ${type}`, body.schema));
  }
  for (const [status, response] of Object.entries(described.responses)) {
    for (const [type, body] of Object.entries(response.content ?? {})) {
      details.append(...shown(`${status}, ${type}`, body.schema));
    }
  }
  return details;
}

async function show() {
  const api = await (await fetch("/openapi.json")).json();
  const main = document.getElementById("operations");
  main.replaceChildren();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, described] of Object.entries(methods)) {
      main.append(operation(path, method, described));
    }
  }
  main.append(element("h2", "Schemas"));
  for (const [name, schema] of Object.entries(api.components.schemas)) {
    const details = element("details", "", element("summary", name));
    details.append(...shown("", schema));
    main.append(details);
  }
}

show();
