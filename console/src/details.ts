// One item, large: its picture, its figures, and why it stands where it stands.

import type { AttributeValue } from "../../clients/typescript/gen/tandem/v1/attribute_pb.js";
import type { RankedItem, SearchItemsResponse } from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { byId, element } from "./elements.ts";
import { percent } from "./figures.ts";
import { HeatMap } from "./heat_map.ts";
import type { Score } from "./occlusion.ts";
import { Pictures } from "./pictures.ts";
import type { Query } from "./search.ts";
import { whyWords } from "./why.ts";

/** The dialog of the page. */
export class Details {
  private readonly dialog = byId("details", HTMLDialogElement);
  private readonly body = byId("details-body", HTMLElement);
  private readonly pictures = new Pictures();

  private heatMap: HeatMap | null = null;

  constructor(
    private readonly searchedBy: (item: RankedItem) => void,
    private readonly score: Score,
  ) {
    byId("details-close", HTMLButtonElement).addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("close", () => {
      this.heatMap?.close();
      this.pictures.forget();
    });
  }

  /** Opens the dialog; without a final answer, an item has no reasons yet. */
  open(item: RankedItem, answer: SearchItemsResponse | null, query: Query | null): void {
    const placed = answer?.items.find(({ itemId }) => itemId === item.itemId);
    const shown = placed ?? item;
    byId("details-title", HTMLElement).textContent = shown.itemId;
    const picture = element("div", { class: "large" }, this.pictures.shown(shown.itemId, shown.content));
    this.heatMap = this.heatMapOf(shown, query, picture);
    const again = element("button", { type: "button", class: "quiet" }, "Search by this item");
    again.addEventListener("click", () => {
      this.dialog.close();
      this.searchedBy(shown);
    });
    const why =
      answer === null
        ? ["The cross-encoder is still reading."]
        : placed === undefined
          ? [leftOutWords(item)]
          : whyWords(placed, answer);
    this.body.replaceChildren(
      picture,
      element(
        "div",
        { class: "facts" },
        element("h3", {}, "Why it stands here"),
        ...why.map((each) => element("p", {}, each)),
        this.heatMap?.area,
        terms(shown),
        attributes(shown.attributes),
        element("div", { class: "actions" }, again),
      ),
    );
    if (!this.dialog.open) this.dialog.showModal();
  }

  /** Returns the heat map of a text and a picture, whichever of them is the query. */
  private heatMapOf(item: RankedItem, query: Query | null, picture: HTMLElement): HeatMap | null {
    const data = item.content?.data;
    if (query?.kind === "text" && data?.case === "image") {
      return new HeatMap(query.text, data.value, picture, this.score);
    }
    if (query?.kind === "image" && data?.case === "text") {
      const shown = element("div", { class: "large" }, this.pictures.ofBytes("the query", query.bytes));
      picture.append(shown);
      return new HeatMap(data.value, query.bytes, shown, this.score);
    }
    return null;
  }
}

function leftOutWords(item: RankedItem): string {
  return `The final order does not show it: it was ${item.retrieveRank}. by similarity, and others came before it, or it is below the cut.`;
}

function terms(item: RankedItem): HTMLElement | null {
  const found = item.explanation?.terms ?? [];
  if (found.length === 0) return null;
  const rows = found.map(({ name, value, weight }) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name.replaceAll("_", " ")),
      element("td", {}, value.toFixed(3)),
      element("td", {}, `× ${weight.toFixed(2)}`),
      element("td", {}, (value * weight).toFixed(3)),
    ),
  );
  const sum = element(
    "tr",
    { class: "sum" },
    element("th", { scope: "row" }, "score"),
    element("td", {}),
    element("td", {}),
    element("td", {}, item.score.toFixed(3)),
  );
  const probability =
    item.matchProbability === undefined ? null : element("p", { class: "faint" }, `The calibrated probability of this match is ${percent(item.matchProbability)}.`);
  return element(
    "div",
    {},
    element("h3", {}, "Score"),
    element("table", { class: "terms" }, element("tbody", {}, ...rows, sum)),
    probability,
  );
}

function attributes(values: Readonly<Record<string, AttributeValue>>): HTMLElement | null {
  const names = Object.keys(values).sort();
  if (names.length === 0) return null;
  const list = element("dl", { class: "attributes" });
  for (const name of names) {
    list.append(element("dt", {}, name), element("dd", {}, valueInWords(values[name])));
  }
  return element("div", {}, element("h3", {}, "Attributes"), list);
}

function valueInWords(attribute: AttributeValue | undefined): string {
  const value = attribute?.value;
  if (value === undefined || value.case === undefined) return "";
  return value.case === "texts" ? value.value.values.join(", ") : String(value.value);
}
