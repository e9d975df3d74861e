// Shows the state of an index over all shards, and how much of the nearest its searches find.

import { Modality } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import { KeywordState, type DirectionRecall, type IndexPart } from "../../clients/typescript/gen/tandem/v1/index_service_pb.js";
import type { DescribeIndexResponse, ShardIndex } from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { byId, element } from "./elements.ts";
import { counted, recallPercent } from "./figures.ts";
import { problemOf } from "./problems.ts";
import { missingWords } from "./words.ts";

/** Asks for the state of the index that is chosen. */
export type Describe = (signal: AbortSignal) => Promise<DescribeIndexResponse>;

const KEYWORDS: Readonly<Record<KeywordState, string>> = {
  [KeywordState.UNSPECIFIED]: "unknown",
  [KeywordState.SEARCHED]: "searched where a search asks for it",
  [KeywordState.DISABLED]: "not kept",
  [KeywordState.BEING_BUILT]: "still being read from the store",
};

/** The folded panel at the end of the page: it asks when it is opened, and again on request. */
export class IndexState {
  private readonly panel = byId("state", HTMLDetailsElement);
  private readonly status = byId("state-status", HTMLElement);
  private readonly body = byId("state-body", HTMLElement);
  private running: AbortController | null = null;
  private shownTime = "";

  constructor(private readonly describe: Describe) {
    this.panel.addEventListener("toggle", () => {
      if (this.panel.open) void this.refresh();
      else this.running?.abort();
    });
    byId("state-refresh", HTMLButtonElement).addEventListener("click", () => void this.refresh());
    byId("index", HTMLInputElement).addEventListener("change", () => {
      if (this.panel.open) void this.refresh();
    });
  }

  /** Says that what is shown may have changed, since the server does not answer. */
  markStale(): void {
    if (this.shownTime === "") return;
    this.status.textContent = `The server does not answer. This was the state at ${this.shownTime}.`;
    this.shownTime = "";
  }

  private async refresh(): Promise<void> {
    this.running?.abort();
    const own = (this.running = new AbortController());
    this.status.textContent = "Asking every shard…";
    try {
      const found = await this.describe(own.signal);
      if (own.signal.aborted) return;
      this.body.replaceChildren(recalls(found), parts(found.shards));
      this.status.textContent = summary(found);
      this.shownTime = new Date().toLocaleTimeString();
    } catch (error) {
      if (own.signal.aborted) return;
      this.body.replaceChildren();
      this.shownTime = "";
      this.status.textContent = problemOf(error).message;
    }
  }
}

function summary({ shards, coverage, modelFingerprint, embeddingDimension }: DescribeIndexResponse): string {
  const count = (modality: Modality) =>
    shards.flatMap((shard) => shard.parts).reduce((sum, part) => (part.modality === modality ? sum + Number(part.itemCount) : sum), 0);
  const kinds = `${counted(count(Modality.IMAGE), "picture")} and ${counted(count(Modality.TEXT), "text")}`;
  const answered = `${coverage?.answeredShardCount ?? 0} of ${counted(coverage?.shardCount ?? 0, "shard")}`;
  const missing = coverage?.missingShards ?? [];
  const lacks = missing.length === 0 ? "" : ` It lacks a part: ${missingWords(missing)}.`;
  return `${kinds} on ${answered}, encoded by model ${modelFingerprint.slice(0, 12)} in ${embeddingDimension} dimensions. ${keywordWords(shards)}${lacks}`;
}

function keywordWords(shards: readonly ShardIndex[]): string {
  const states = new Set(shards.map(({ keywordState }) => keywordState));
  return `Words are ${[...states].map((state) => KEYWORDS[state]).join(", or ")}.`;
}

function recalls({ liveRecalls, shards }: DescribeIndexResponse): HTMLElement {
  const lines = liveRecalls.map((recall) => {
    const target = targetOf(shards, recall.targetModality);
    const isLow = recall.recall < target;
    const against = isLow ? `below the target of ${recallPercent(target)}` : `the target is ${recallPercent(target)}`;
    const measured = counted(recall.searchCount, "search", "searches");
    return element(
      "li",
      isLow ? { class: "down" } : {},
      `${directionWords(recall)}: `,
      element("b", {}, recallPercent(recall.recall)),
      ` in ${measured}; ${against}`,
    );
  });
  const none = "No recent search was repeated exactly, so there is no live recall.";
  return element(
    "div",
    {},
    element("h2", {}, "Live recall: how many of the nearest items recent searches found"),
    lines.length === 0 ? element("p", {}, none) : element("ul", { class: "recalls" }, ...lines),
  );
}

function targetOf(shards: readonly ShardIndex[], modality: Modality): number {
  const found = shards.flatMap((shard) => shard.parts).filter((part) => part.modality === modality);
  return Math.max(0, ...found.map(({ recallTarget }) => recallTarget));
}

function parts(shards: readonly ShardIndex[]): HTMLElement {
  const head = ["Shard", "Items", "Not indexed yet", "Deleted rows", "Index", "Built recall", "Live recall", "Now"];
  const headings = head.map((each) => element("th", { scope: "col" }, each));
  const rows = shards.flatMap(({ shardNumber, parts }) => parts.map((part) => row(shardNumber, part)));
  const table = element(
    "table",
    { class: "figures-table" },
    element("thead", {}, element("tr", {}, ...headings)),
    element("tbody", {}, ...rows),
  );
  const named = { class: "scrolled", tabindex: 0, role: "region", "aria-label": "Each shard’s part of the index" };
  return element("div", {}, element("h2", {}, "Shards"), element("div", named, table));
}

function row(shardNumber: number, part: IndexPart): HTMLElement {
  const parameters = Object.entries(part.parameters).map(([name, value]) => `${name}=${value}`);
  const cells = [
    counted(part.itemCount, part.modality === Modality.IMAGE ? "picture" : "text"),
    part.tailRowCount.toLocaleString("en"),
    part.deadRowCount.toLocaleString("en"),
    `${[part.indexType, ...parameters].join(" ")} on ${part.device}`,
    part.builtRecall === undefined ? "–" : recallPercent(part.builtRecall),
    part.liveRecalls.map((each) => `${recallPercent(each.recall)} ${fromWords(each)}`).join(", ") || "–",
    [part.fallbackReason, part.activity].filter((each) => each !== "").join("; ") || "–",
  ];
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, String(shardNumber)),
    ...cells.map((each) => element("td", {}, each)),
  );
}

function directionWords({ queryModality, targetModality }: DirectionRecall): string {
  return `${targetModality === Modality.IMAGE ? "Pictures" : "Texts"} by ${kindWords(queryModality)}`;
}

function fromWords({ queryModality }: DirectionRecall): string {
  return `by ${kindWords(queryModality)}`;
}

function kindWords(modality: Modality): string {
  return modality === Modality.IMAGE ? "picture" : "text";
}
