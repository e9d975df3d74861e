// Shows the two orders side by side, with a curve from each item's first place to its last.

import type { RankedItem, SearchItemsResponse } from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { byId, element, svgElement } from "./elements.ts";
import { ordinal, percent } from "./figures.ts";
import { Pictures } from "./pictures.ts";
import { gainedPlaces } from "./why.ts";

type Opened = (item: RankedItem, picture: HTMLElement) => void;

/** The two columns of the page, and the curves between them. */
export class Orders {
  private readonly columns = byId("columns", HTMLElement);
  private readonly retrieved = byId("retrieved", HTMLOListElement);
  private readonly reranked = byId("reranked", HTMLOListElement);
  private readonly curves = byId("curves", SVGSVGElement);
  private readonly pictures = new Pictures();
  private first: readonly RankedItem[] = [];
  private last: readonly RankedItem[] = [];

  constructor(
    private readonly opened: Opened,
    private readonly similar: (item: RankedItem) => void,
  ) {
    new ResizeObserver(() => this.drawCurves()).observe(this.columns);
  }

  /** Shows the bi-encoder's order, and that the other one is awaited. */
  showRetrieved(answer: SearchItemsResponse): void {
    this.pictures.forget();
    this.first = answer.items;
    this.last = [];
    this.retrieved.replaceChildren(...answer.items.map((item) => this.card(item, false)));
    this.reranked.replaceChildren(
      ...answer.items.map(() => element("li", { class: "card awaited", "aria-hidden": "true" })),
    );
    this.drawCurves();
  }

  /** Shows the final order. */
  showFinal(answer: SearchItemsResponse): void {
    this.last = answer.items;
    const kept = new Set(answer.items.map(({ itemId }) => itemId));
    this.reranked.replaceChildren(...answer.items.map((item) => this.card(item, true)));
    for (const card of this.retrieved.children) {
      card.classList.toggle("gone", !kept.has(card.getAttribute("data-item") ?? ""));
    }
    this.drawCurves();
  }

  /** Empties both columns. */
  clear(): void {
    this.pictures.forget();
    this.first = this.last = [];
    for (const each of [this.retrieved, this.reranked, this.curves]) each.replaceChildren();
  }

  private card(item: RankedItem, isFinal: boolean): HTMLElement {
    const rank = isFinal ? item.finalRank : item.retrieveRank;
    const picture = this.pictures.shown(item.itemId, item.content);
    const card = element(
      "li",
      { class: "card", "data-item": item.itemId },
      element(
        "button",
        { type: "button", "aria-haspopup": "dialog", click: () => this.opened(item, picture) },
        element("span", { class: "rank" }, String(rank)),
        element("span", { class: "frame" }, picture),
        element("span", { class: "figures" }, ...(isFinal ? finalFigures(item) : firstFigures(item))),
      ),
      element(
        "button",
        { type: "button", class: "similar", title: "Find similar", click: () => this.similar(item) },
        element("span", { "aria-hidden": "true" }, "≈"),
        element("span", { class: "unseen" }, `Find items like ${item.itemId}`),
      ),
    );
    for (const [event, isLit] of [["pointerenter", true], ["focusin", true], ["pointerleave", false], ["focusout", false]] as const) {
      card.addEventListener(event, () => this.light(item.itemId, isLit));
    }
    return card;
  }

  private light(itemId: string, isLit: boolean): void {
    this.columns.classList.toggle("has-lit", isLit);
    for (const each of this.columns.querySelectorAll("[data-item]")) {
      each.classList.toggle("lit", isLit && each.getAttribute("data-item") === itemId);
    }
  }

  private drawCurves(): void {
    const { width, height, top } = this.curves.getBoundingClientRect();
    this.curves.setAttribute("viewBox", `0 0 ${Math.max(1, width)} ${Math.max(1, height)}`);
    const middles = (list: Element) =>
      new Map(
        [...list.querySelectorAll("[data-item]")].map((card) => {
          const box = card.getBoundingClientRect();
          return [card.getAttribute("data-item") ?? "", box.top + box.height / 2 - top] as const;
        }),
      );
    const [from, to] = [middles(this.retrieved), middles(this.reranked)];
    const ids = new Set([...this.first, ...this.last].map(({ itemId }) => itemId));
    const gains = new Map(this.last.map((item) => [item.itemId, gainedPlaces(item)]));
    const paths = this.last.length === 0 ? [] : [...ids].map((id) => {
      const [y0, y1] = [from.get(id) ?? height, to.get(id) ?? height];
      const gained = gains.get(id) ?? -1;
      const kind = gained > 0 ? "up" : gained < 0 ? "down" : "same";
      const isPartial = !from.has(id) || !to.has(id);
      const [a, b] = [width * 0.45, width * 0.55];
      return svgElement("path", {
        d: `M0 ${y0}C${a} ${y0} ${b} ${y1} ${width} ${y1}`,
        class: `curve ${kind}${isPartial ? " partial" : ""}`,
        pathLength: 1,
        "data-item": id,
      });
    });
    this.curves.replaceChildren(...paths);
  }
}

function firstFigures(item: RankedItem): HTMLElement[] {
  return [
    element("span", { class: "id" }, item.itemId),
    figure("similarity", item.similarity.toFixed(3)),
    ...wordFigures(item),
  ];
}

function wordFigures({ hybrid }: RankedItem): HTMLElement[] {
  if (hybrid?.keywordRank === undefined) return [];
  const name = element("span", { class: "name" }, "by words ");
  return [element("span", { class: "figure" }, name, ordinal(hybrid.keywordRank))];
}

function finalFigures(item: RankedItem): HTMLElement[] {
  const gained = gainedPlaces(item);
  const moved =
    gained === 0
      ? element("span", { class: "moved same" }, "stays")
      : element(
          "span",
          { class: `moved ${gained > 0 ? "up" : "down"}` },
          `${gained > 0 ? "▲" : "▼"} ${Math.abs(gained)}`,
          element("span", { class: "unseen" }, ` ${gained > 0 ? "up" : "down"}, from ${ordinal(item.retrieveRank)}`),
        );
  const id = element("span", { class: "id" }, item.itemId);
  if (item.matchLogit === undefined) {
    return [id, figure("similarity", item.similarity.toFixed(3)), element("span", { class: "faint" }, "not reranked"), moved];
  }
  return [
    id,
    probability(item.matchProbability),
    figure("logit", item.matchLogit.toFixed(2)),
    figure("similarity", item.similarity.toFixed(3)),
    ...wordFigures(item),
    moved,
  ];
}

function figure(name: string, value: string): HTMLElement {
  return element("span", { class: `figure ${name}` }, element("span", { class: "name" }, `${name} `), value);
}

function probability(share: number | undefined): HTMLElement {
  if (share === undefined) return element("span", { class: "faint", title: "the model was not calibrated" }, "uncalibrated");
  const bar = element("span", { class: "probability-bar" }, element("span", {}));
  (bar.firstElementChild as HTMLElement).style.width = `${share * 100}%`;
  return element("span", { class: "probability" }, element("b", {}, percent(share)), bar);
}
