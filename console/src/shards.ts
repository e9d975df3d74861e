// Shows how each shard found its items.

import { Modality } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import { SearchFallback, SearchStrategy } from "../../clients/typescript/gen/tandem/v1/index_service_pb.js";
import type { ShardRetrieval } from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { byId, element } from "./elements.ts";
import { counted } from "./figures.ts";

const STRATEGIES: Readonly<Record<SearchStrategy, string>> = {
  [SearchStrategy.UNSPECIFIED]: "",
  [SearchStrategy.UNFILTERED]: "index searched",
  [SearchStrategy.PRE_FILTER]: "filtered first, then index searched",
  [SearchStrategy.POST_FILTER]: "index searched, then filtered",
  [SearchStrategy.EXACT_SCAN]: "every item compared",
};

const FALLBACKS: Readonly<Record<SearchFallback, string>> = {
  [SearchFallback.UNSPECIFIED]: "",
  [SearchFallback.BEING_BUILT]: "the index is being built",
  [SearchFallback.NOT_BUILT]: "the index could not be built as configured",
  [SearchFallback.DEVICE]: "the device cannot search it",
  [SearchFallback.TOO_FEW_FOUND]: "the index found too few items",
};

/** Shows one row for each shard and modality. */
export function showShards(retrievals: readonly ShardRetrieval[]): void {
  const head = element(
    "tr",
    {},
    ...["Shard", "Items", "Match the filter", "Index", "How"].map((name) => element("th", { scope: "col" }, name)),
  );
  byId("shards", HTMLTableElement).replaceChildren(
    element("thead", {}, head),
    element("tbody", {}, ...retrievals.map(row)),
  );
}

function row({ shardNumber, modality, path, itemCount }: ShardRetrieval): HTMLElement {
  const kind = modality === Modality.IMAGE ? "picture" : "text";
  const matching = path?.matchingCount;
  const fallback = FALLBACKS[path?.fallback ?? SearchFallback.UNSPECIFIED];
  const how = STRATEGIES[path?.strategy ?? SearchStrategy.UNSPECIFIED];
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, String(shardNumber)),
    element("td", {}, counted(itemCount, kind)),
    element("td", {}, matching === undefined ? "–" : matching.toLocaleString("en")),
    element("td", {}, `${path?.indexType || "Flat"} on ${path?.device || "?"}`),
    element("td", {}, fallback === "" ? how : `${how}: ${fallback}`),
  );
}
