// The link to a search: what the form says, in the page's fragment, which no server gets. It has no
// token and no picture.

import { byId } from "./elements.ts";
import { DEADLINES_MS } from "./form.ts";

// By the names in the link.
const FIELDS: Readonly<Record<string, string>> = {
  index: "index",
  filter: "filter",
  find: "target",
  rerank: "depth",
  least_percent: "cut",
  limit_ms: "deadline",
  show: "shown",
  false_answers: "false-answers",
  fusion: "fusion",
  match: "keywords",
  adaptive: "adaptive",
  neighbours: "neighbours",
  prefix: "prefix",
  order: "order",
};

/** Puts the form and what is searched for into the address, as a new step of the history. */
export function writeLink(query: Readonly<Record<string, string>>): void {
  const link = new URLSearchParams(query);
  for (const [name, id] of Object.entries(FIELDS)) {
    const shown = valueOf(control(id));
    const value = name === "limit_ms" ? String(DEADLINES_MS[Number(shown)]) : shown;
    if (value !== "") link.set(name, value);
  }
  if (location.hash !== `#${link}`) history.pushState(null, "", `#${link}`);
}

/** Puts what the address says into the form, and defaults where it says nothing; returns the link. */
export function readLink(): URLSearchParams {
  const link = new URLSearchParams(location.hash.slice(1));
  for (const [name, id] of Object.entries(FIELDS)) {
    const place = DEADLINES_MS.indexOf(Number(link.get(name)));
    const value = name === "limit_ms" ? (place < 0 ? null : String(place)) : link.get(name);
    const field = control(id);
    if (field instanceof HTMLSelectElement) {
      const byDefault = [...field.options].find(({ defaultSelected }) => defaultSelected);
      const isKnown = [...field.options].some((each) => each.value === value);
      field.value = isKnown && value !== null ? value : (byDefault?.value ?? field.options[0]?.value ?? "");
    } else if (field.type === "checkbox") field.checked = value === "on";
    else field.value = value ?? field.defaultValue;
  }
  return link;
}

function control(id: string): HTMLInputElement | HTMLSelectElement {
  const found = document.getElementById(id);
  return found instanceof HTMLSelectElement ? found : byId(id, HTMLInputElement);
}

function valueOf(field: HTMLInputElement | HTMLSelectElement): string {
  return field instanceof HTMLInputElement && field.type === "checkbox" && !field.checked ? "" : field.value.trim();
}
