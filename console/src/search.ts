// Searches: from what a person chose to the two answers of the server.

import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Client } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";

import { ContentSchema, Modality, type Content } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import { ContentService, DocumentSchema } from "../../clients/typescript/gen/tandem/v1/content_service_pb.js";
import type { ListItemsResponse } from "../../clients/typescript/gen/tandem/v1/content_service_pb.js";
import type { IndexSummary, ItemSelection } from "../../clients/typescript/gen/tandem/v1/index_service_pb.js";
import { ModelService } from "../../clients/typescript/gen/tandem/v1/model_service_pb.js";
import {
  HybridFusion,
  HybridSearchSchema,
  QueryPartSchema,
  SearchItemsRequestSchema,
  SearchPhase,
  SearchService,
  type DescribeIndexResponse,
  type SearchItemsRequest,
  type SearchItemsResponse,
} from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { problemOf } from "./problems.ts";
import { newTrace } from "./trace.ts";

/** An item of the index, whether a search found it or not. */
export interface StoredItem {
  readonly itemId: string;
  readonly modality: Modality;
  readonly content?: Content | undefined;
}

export type Query =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "image"; readonly bytes: Uint8Array<ArrayBuffer>; readonly name: string }
  | { readonly kind: "item"; readonly itemId: string; readonly modality: Modality };

export interface Choices {
  readonly query: Query;
  readonly indexId: string;
  readonly target: Modality;
  readonly rerankDepth: number;
  readonly shownCount: number;
  readonly minProbability: number;
  /** The share of queries without an answer that may get one; 0: all. */
  readonly maxFalseAnswerRate: number;
  readonly deadlineMs: number;
  readonly filterText: string;
  readonly isAdaptive: boolean;
  readonly usesNeighbours: boolean;
  /** How what words find is fused with what embeddings find; UNSPECIFIED: not at all. */
  readonly hybridFusion: HybridFusion;
  /** Empty: the words of the query. */
  readonly keywords: string;
}

export interface Phase {
  readonly answer: SearchItemsResponse;
  readonly isFinal: boolean;
  readonly afterMs: number;
  readonly traceId: string;
}

/** The most items that this page has the cross-encoder read in one search; a server reads 1,000. */
export const MAX_RERANK_DEPTH = 200;

/** Calls the server that the page came from. */
export class Server {
  /** The token that calls carry; it is never stored. */
  token = "";
  private readonly search: Client<typeof SearchService>;
  private readonly contents: Client<typeof ContentService>;
  private readonly models: Client<typeof ModelService>;

  constructor(baseUrl: string) {
    const transport = createConnectTransport({
      baseUrl,
      useBinaryFormat: true,
      interceptors: [
        (next) => (request) => {
          if (this.token !== "") request.header.set("authorization", `Bearer ${this.token}`);
          return next(request);
        },
      ],
    });
    this.search = createClient(SearchService, transport);
    this.contents = createClient(ContentService, transport);
    this.models = createClient(ModelService, transport);
  }

  /** Yields the answer in bi-encoder order, then the final one; throws ConnectError. */
  async *answers(choices: Choices, signal: AbortSignal): AsyncGenerator<Phase> {
    const trace = newTrace();
    const begun = performance.now();
    const stream = this.search.streamSearchItems(
      { search: searchRequest(choices) },
      { signal, timeoutMs: choices.deadlineMs, headers: { traceparent: trace.header } },
    );
    for await (const { phase, answer } of stream) {
      if (answer !== undefined) {
        const afterMs = performance.now() - begun;
        yield { answer, isFinal: phase === SearchPhase.FINAL, afterMs, traceId: trace.id };
      }
    }
  }

  /** Returns the cross-encoder's logit of a text with each picture; throws ConnectError. */
  async score(text: string, pictures: readonly Uint8Array[], signal: AbortSignal): Promise<number[]> {
    const documents = pictures.map((picture) => {
      const value = create(ContentSchema, { data: { case: "image", value: Uint8Array.from(picture) } });
      return create(DocumentSchema, { source: { case: "content", value } });
    });
    const query = create(ContentSchema, { data: { case: "text", value: text } });
    const { scores } = await this.contents.scoreDocuments({ query, documents }, { signal, timeoutMs: 60_000 });
    return scores.map(({ matchLogit, error }) => {
      if (matchLogit !== undefined) return matchLogit;
      throw new ConnectError(error?.message ?? "this model has no cross-encoder", Code.FailedPrecondition);
    });
  }

  /** Returns items with their attributes, as many as one page may have; throws ConnectError. */
  async list(
    indexId: string,
    asked: { readonly pageToken: string; readonly selection?: Partial<Pick<ItemSelection, "idPrefix" | "filterText">> },
    signal: AbortSignal,
  ): Promise<ListItemsResponse> {
    const request = { indexId, pageSize: 1000, attributesIncluded: true, ...asked };
    return this.contents.listItems(request, { signal, timeoutMs: 20_000 });
  }

  /** Returns those of the items that there are, with their contents; throws ConnectError. */
  async fetch(indexId: string, itemIds: readonly string[], signal?: AbortSignal): Promise<StoredItem[]> {
    try {
      const asked = { indexId, itemIds: [...itemIds] };
      const { items } = await this.contents.fetchItems(asked, { ...(signal ? { signal } : {}), timeoutMs: 20_000 });
      return items.map(({ itemId, content }) => {
        const modality = content?.data.case === "text" ? Modality.TEXT : Modality.IMAGE;
        return { itemId, content, modality };
      });
    } catch (error) {
      if (problemOf(error).reason !== "ANSWER_TOO_LARGE" || itemIds.length === 1) throw error;
      const half = Math.ceil(itemIds.length / 2);
      const first = await this.fetch(indexId, itemIds.slice(0, half), signal);
      return [...first, ...(await this.fetch(indexId, itemIds.slice(half), signal))];
    }
  }

  /** Returns the state of an index; throws ConnectError. */
  async index(indexId: string, signal: AbortSignal): Promise<DescribeIndexResponse> {
    return this.search.describeIndex({ indexId }, { signal, timeoutMs: 10_000 });
  }

  /** Returns the first indexes that the token may search; throws ConnectError. */
  async indexes(): Promise<readonly IndexSummary[]> {
    const found: IndexSummary[] = [];
    let pageToken = "";
    do {
      const page = await this.search.listIndexes({ pageToken, pageSize: 1000 }, { timeoutMs: 5000 });
      found.push(...page.indexes);
      pageToken = page.nextPageToken;
    } while (pageToken !== "" && found.length < 1000);
    return found;
  }

  /** Returns the model that the server serves; throws ConnectError. */
  async model() {
    return (await this.models.describeModel({}, { timeoutMs: 5000 })).model;
  }
}

/** Returns the message of a search. */
export function searchRequest(choices: Choices): SearchItemsRequest {
  const { query, rerankDepth, shownCount } = choices;
  const request = create(SearchItemsRequestSchema, {
    indexId: choices.indexId,
    targetModality: choices.target,
    retrieveK: Math.max(rerankDepth, shownCount),
    returnN: shownCount,
    rerankDisabled: rerankDepth === 0,
    contentIncluded: true,
    explained: true,
    filterText: choices.filterText,
    adaptiveDepth: choices.isAdaptive,
    neighboursEnabled: choices.usesNeighbours,
  });
  if (rerankDepth > 0) request.rerankK = rerankDepth;
  if (choices.maxFalseAnswerRate > 0) request.maxFalseAnswerRate = choices.maxFalseAnswerRate;
  if (choices.minProbability > 0) request.minProbability = choices.minProbability;
  if (choices.hybridFusion !== HybridFusion.UNSPECIFIED) {
    request.hybrid = create(HybridSearchSchema, { keywords: choices.keywords, fusion: choices.hybridFusion });
  }
  if (query.kind === "item") {
    const source = { case: "itemId", value: query.itemId } as const;
    request.queryParts = [create(QueryPartSchema, { source })];
  } else {
    request.query = create(ContentSchema, {
      data:
        query.kind === "text"
          ? { case: "text", value: query.text }
          : { case: "image", value: query.bytes },
    });
  }
  return request;
}

/** Returns what a query finds: what was chosen, or the other modality. */
export function targetOf(query: Query, chosen: Modality): Modality {
  if (chosen !== Modality.UNSPECIFIED) return chosen;
  if (query.kind === "item") {
    return query.modality === Modality.IMAGE ? Modality.TEXT : Modality.IMAGE;
  }
  return query.kind === "text" ? Modality.IMAGE : Modality.TEXT;
}
