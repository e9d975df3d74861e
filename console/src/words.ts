// Says in words what an answer lacks: its degradations, its coverage, why a rerank stopped.

import { Modality } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import { ErrorReason } from "../../clients/typescript/gen/tandem/v1/error_reason_pb.js";
import { KeywordState } from "../../clients/typescript/gen/tandem/v1/index_service_pb.js";
import {
  Degradation,
  NeighbourStop,
  RerankStop,
  type Coverage,
  type MissingShard,
  type SearchItemsResponse,
} from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { counted, percent } from "./figures.ts";
import type { Choices } from "./search.ts";

const RERANK_STOPS: Readonly<Record<RerankStop, string>> = {
  [RerankStop.UNSPECIFIED]: "it did not say why",
  [RerankStop.COMPLETE]: "every candidate was read",
  [RerankStop.DISABLED]: "reranking is switched off",
  [RerankStop.NOT_APPLICABLE]:
    "there is nothing that it can read: the query and the items are of one kind, or this model has no cross-encoder",
  [RerankStop.TIME]: "the time was used up",
  [RerankStop.ADAPTIVE]: "the first item was unlikely to change",
  [RerankStop.UNAVAILABLE]: "the cross-encoder did not answer",
  [RerankStop.OUTPUT_INVALID]: "the cross-encoder returned invalid scores",
  [RerankStop.OVERLOADED]: "the cross-encoder is overloaded",
};

const NEIGHBOUR_STOPS: Readonly<Record<NeighbourStop, string>> = {
  [NeighbourStop.UNSPECIFIED]: "it did not say why",
  [NeighbourStop.COMPLETE]: "the first items were scored",
  [NeighbourStop.NOT_SERVED]: "no neighbour model is served",
  [NeighbourStop.NOT_APPLICABLE]: "it does not apply to this query",
  [NeighbourStop.MODEL_MISMATCH]: "the neighbour model was trained over another model",
  [NeighbourStop.TOO_FEW_ITEMS]: "the index has too few items",
  [NeighbourStop.TIME]: "the time was used up",
  [NeighbourStop.UNAVAILABLE]: "the neighbour model did not answer",
  [NeighbourStop.OUTPUT_INVALID]: "the neighbour model returned invalid scores",
  [NeighbourStop.OVERLOADED]: "the neighbour model is overloaded",
  [NeighbourStop.RERANK_MISMATCH]: "the neighbour model learned over another rerank",
};

/** Returns a sentence for each way in which the answer is less than was asked for. */
export function degradationWords(answer: SearchItemsResponse, rerankDepth: number): string[] {
  return answer.degradations.map((each) => degradationInWords(each, answer, rerankDepth));
}

/** Returns why nothing was found, for an index that has so many items of the kind that was not. */
export function emptyWords(answer: SearchItemsResponse, choices: Choices, otherCount: bigint | null): string {
  const kind = choices.target === Modality.TEXT ? "texts" : "pictures";
  if (answer.abstention?.abstained === true) {
    const rate = percent(answer.abstention.maxFalseAnswerRate);
    return `Nothing here matches. The nearest ${kind} score no higher than those of queries without an answer, of which at most ${rate} get one.`;
  }
  if (answer.coverage?.coveredItemCount === 0n) {
    const other = otherCount === null || otherCount === 0n ? "" : ` It has ${otherWords(choices.target, otherCount)}.`;
    return `The index ${choices.indexId} has no ${kind}.${other}`;
  }
  const why = [
    choices.filterText === "" ? "" : "the filter leaves none",
    choices.minProbability === 0 ? "" : "“Hide matches below” leaves out what was found",
  ].filter((each) => each !== "");
  return why.length === 0 ? `No ${kind} were found.` : `No ${kind} were found: perhaps ${why.join(", or ")}.`;
}

function otherWords(target: Modality, count: bigint): string {
  return counted(count, target === Modality.TEXT ? "picture" : "text");
}

/** Returns how deep the cross-encoder read, and why not deeper. */
export function rerankWords(answer: SearchItemsResponse): string {
  const { rerank } = answer;
  if (rerank === undefined) return "";
  const stop = RERANK_STOPS[rerank.stop];
  return rerank.rerankedDepth === 0
    ? `The cross-encoder read nothing: ${stop}.`
    : `The cross-encoder read ${counted(rerank.rerankedDepth, "candidate")}: ${stop}.`;
}

/** Returns how much of the index was searched. */
export function coverageWords(coverage: Coverage | undefined): string {
  if (coverage === undefined) return "";
  const { answeredShardCount, shardCount, coveredItemCount, itemCount, missingShards } = coverage;
  if (missingShards.length === 0) {
    return `Searched all ${counted(coveredItemCount, "item")} on ${counted(shardCount, "shard")}.`;
  }
  const ofAll = itemCount === undefined ? "" : ` of ${counted(itemCount, "item")}`;
  const covered = ofAll === "" ? counted(coveredItemCount, "item") : coveredItemCount.toLocaleString("en");
  return `Searched ${covered}${ofAll}: ${answeredShardCount} of ${counted(shardCount, "shard")} answered; ${missingWords(missingShards)}.`;
}

function degradationInWords(
  degradation: Degradation,
  answer: SearchItemsResponse,
  rerankDepth: number,
): string {
  const stop = RERANK_STOPS[answer.rerank?.stop ?? RerankStop.UNSPECIFIED];
  const depth = answer.rerank?.rerankedDepth ?? 0;
  const neighbours = NEIGHBOUR_STOPS[answer.neighbours?.stop ?? NeighbourStop.UNSPECIFIED];
  switch (degradation) {
    case Degradation.RERANK_SKIPPED:
      return `Not reranked, because ${stop}. Both columns show the bi-encoder’s order.`;
    case Degradation.RERANK_PARTIAL:
      return `Only the first ${depth} of ${rerankDepth} candidates were reranked, because ${stop}. The others follow as retrieved.`;
    case Degradation.SHARDS_MISSING:
      return `A part of the index is missing. ${coverageWords(answer.coverage)}`;
    case Degradation.TOKENS_MISSING:
      return `${counted(answer.rerank?.missingCount ?? 0, "candidate")} could not be reranked: deleted meanwhile, or stored without what the cross-encoder reads.`;
    case Degradation.EMBEDDING_CACHED:
      return "The encoder’s model is down; the query’s encoding came from a cache. The results are complete.";
    case Degradation.SHARD_REBUILDING:
      return "An index is being built, so every item was compared: slower, with the same results.";
    case Degradation.NEIGHBOURS_SKIPPED:
      return `Not reordered by neighbours, because ${neighbours}.`;
    case Degradation.NEIGHBOURS_PARTIAL:
      return `The neighbours lack a part of the index: ${missingWords(answer.neighbours?.missingShards ?? [])}.`;
    case Degradation.KEYWORDS_SKIPPED:
      return `Not searched by words: ${keywordWords(answer)}. The order is by similarity alone.`;
    case Degradation.KEYWORDS_PARTIAL:
      return `A part of the index was not searched by words: ${keywordWords(answer)}.`;
    default:
      return "The answer is degraded in a way that this page does not know.";
  }
}

function keywordWords(answer: SearchItemsResponse): string {
  const isBuilding = answer.retrievals.some(({ keywordState }) => keywordState === KeywordState.BEING_BUILT);
  return isBuilding
    ? "its words are still being read from the store"
    : "the shards keep no words (INDEX_KEYWORDS_ENABLED)";
}

/** Returns which shards are missing, and why. */
export function missingWords(shards: readonly MissingShard[]): string {
  return shards
    .map(({ shardNumber, reason }) => `shard ${shardNumber} is missing (${reasonName(reason)})`)
    .join(", ");
}

function reasonName(reason: ErrorReason): string {
  return (ErrorReason[reason] ?? "UNKNOWN").toLowerCase().replaceAll("_", " ");
}
