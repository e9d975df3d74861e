// Counts the attributes' values of the items that were loaded; a click adds one to the filter.

import type { AttributeValue } from "../../clients/typescript/gen/tandem/v1/attribute_pb.js";
import { byId, element } from "./elements.ts";
import { counted } from "./figures.ts";

const MAX_NAMES = 12;
const MAX_VALUES = 6;
const KEYWORDS = ["and", "or", "not", "in", "starts", "with", "exists", "true", "false"];

type Values = Map<string, { words: string; count: number }>;

/** Shows the counts, or nothing if no item has attributes. */
export function showValues(
  items: readonly Readonly<Record<string, AttributeValue>>[],
  add: (condition: string) => void,
): void {
  const names = new Map<string, Values>();
  for (const attributes of items) {
    for (const [name, value] of Object.entries(attributes)) {
      const values: Values = names.get(name) ?? new Map();
      names.set(name, values);
      for (const [literal, words] of literals(value)) {
        values.set(literal, { words, count: (values.get(literal)?.count ?? 0) + 1 });
      }
    }
  }
  const rows = [...names].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, MAX_NAMES);
  byId("values", HTMLElement).hidden = rows.length === 0;
  const more = names.size - rows.length;
  byId("values-body", HTMLElement).replaceChildren(
    element("p", { class: "faint" }, `Counted over the ${counted(items.length, "item")} loaded so far.`),
    ...rows.map(([name, values]) => row(name, values, add)),
    more > 0 ? element("p", { class: "faint" }, `and ${counted(more, "more attribute")}`) : "",
  );
}

function row(name: string, values: Values, add: (condition: string) => void): HTMLElement {
  const sorted = [...values].sort(([, a], [, b]) => b.count - a.count || (a.words < b.words ? -1 : 1));
  const isTold = sorted.length <= MAX_VALUES || (sorted[0]?.[1].count ?? 0) > 1;
  const shown = isTold ? sorted.slice(0, MAX_VALUES) : [];
  const rest = sorted.length - shown.length;
  const quoted = /^[A-Za-z_]\w*$/.test(name) && !KEYWORDS.includes(name) ? name : JSON.stringify(name);
  return element(
    "div",
    {},
    element("h2", {}, name),
    ...shown.map(([literal, { words, count }]) =>
      element(
        "button",
        { type: "button", class: "value", title: "Add to the filter", click: () => add(`${quoted} = ${literal}`) },
        element("span", {}, words === "" ? "(empty)" : words),
        element("span", { class: "faint" }, String(count)),
      ),
    ),
    rest > 0 ? element("p", { class: "faint" }, `${isTold ? "and " : ""}${counted(rest, isTold ? "more value" : "different value")}`) : "",
  );
}

/** Returns each value as a filter writes it, and as people read it; of a list, each of its texts once. */
function literals({ value }: AttributeValue): [string, string][] {
  if (value.case === undefined) return [];
  if (value.case === "texts") return [...new Set(value.value.values)].map((each) => [text(each), each]);
  return [[value.case === "text" ? text(value.value) : String(value.value), String(value.value)]];
}

function text(words: string): string {
  return `"${words.replace(/["\\]/g, "\\$&")}"`;
}
