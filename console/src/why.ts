// Says why an item stands where it stands.

import type { RankedItem, SearchItemsResponse } from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { ordinal, percent } from "./figures.ts";

/** The places that an item gained; below 0, the ones that it lost. */
export function gainedPlaces(item: RankedItem): number {
  return item.retrieveRank - item.finalRank;
}

/** Returns a few sentences on one item of the final answer. */
export function whyWords(item: RankedItem, answer: SearchItemsResponse): string[] {
  const retrieved = `Retrieved ${ordinal(item.retrieveRank)}, ${foundWords(item)}.`;
  return [retrieved, rerankedWords(item, answer), movedWords(item, answer)].filter((each) => each !== "");
}

function foundWords({ similarity, hybrid }: RankedItem): string {
  const near = similarity.toFixed(3);
  if (hybrid === undefined) return `by a similarity of ${near}`;
  const { similarityRank, keywordRank, keywordScore } = hybrid;
  const bySimilarity = similarityRank === undefined ? "not among the nearest" : `${ordinal(similarityRank)} by similarity`;
  const byWords = keywordRank === undefined ? "not found by words" : `${ordinal(keywordRank)} by words (BM25 ${(keywordScore ?? 0).toFixed(2)})`;
  return `from both lists: ${bySimilarity} (${near}), ${byWords}`;
}

function rerankedWords(item: RankedItem, answer: SearchItemsResponse): string {
  if (item.matchLogit === undefined) {
    return (answer.rerank?.rerankedDepth ?? 0) === 0
      ? "The cross-encoder did not score it."
      : `The cross-encoder did not score it: it read the first ${answer.rerank?.rerankedDepth} candidates, and the others follow by similarity.`;
  }
  const better = answer.items.filter((other) => (other.matchLogit ?? -Infinity) > (item.matchLogit ?? 0));
  const place = better.length === 0 ? "the highest" : `the ${ordinal(better.length + 1)} highest`;
  const chance =
    item.matchProbability === undefined
      ? "it was not calibrated, so that gives no probability"
      : `it matches with a probability of ${percent(item.matchProbability)}`;
  return `The cross-encoder read both together and gave ${item.matchLogit.toFixed(2)}, ${place} logit here: ${chance}.`;
}

function movedWords(item: RankedItem, answer: SearchItemsResponse): string {
  const stages = (item.explanation?.ranks ?? []).map(({ stage, rank }) => `${stage} ${ordinal(rank)}`);
  const path = stages.length > 2 ? ` After each stage: ${stages.join(", ")}.` : "";
  const gained = gainedPlaces(item);
  if (gained === 0) return `So it stays ${ordinal(item.finalRank)}.${path}`;
  const passed = answer.items.filter((other) =>
    gained > 0
      ? other.retrieveRank < item.retrieveRank && other.finalRank > item.finalRank
      : other.retrieveRank > item.retrieveRank && other.finalRank < item.finalRank,
  );
  const names = passed.slice(0, 3).map((other) => other.itemId);
  const more = passed.length > 3 ? ` and ${passed.length - 3} more` : "";
  const passing = names.length === 0 ? "" : `, past ${names.join(", ")}${more}`;
  return gained > 0
    ? `So it rises from ${ordinal(item.retrieveRank)} to ${ordinal(item.finalRank)}${passing}.${path}`
    : `So it falls from ${ordinal(item.retrieveRank)} to ${ordinal(item.finalRank)}${names.length === 0 ? "" : `: ${names.join(", ")}${more} passed it`}.${path}`;
}
