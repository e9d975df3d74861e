// Stores two texts and searches them from Node, over gRPC:
//
//     node examples/search.js 127.0.0.1:7400
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { IngestItemsRequestSchema, Modality, SearchService } from "tandem-search-client";

const address = process.argv[2] ?? "127.0.0.1:7400";
const transport = createGrpcTransport({ baseUrl: `http://${address}`, defaultTimeoutMs: 30_000 });
const client = createClient(SearchService, transport);
const indexId = "cups";

function text(value) {
  return { data: { case: "text", value } };
}

async function* batches() {
  yield create(IngestItemsRequestSchema, {
    indexId,
    items: [
      { itemId: "cup-1", content: text("a red cup") },
      { itemId: "cup-2", content: text("a blue cup on a table") },
    ],
  });
}

let token = "";
for await (const { results, consistencyToken } of client.ingestItems(batches(), { timeoutMs: 0 })) {
  token = consistencyToken;
  for (const { itemId, error } of results) console.log("stored", itemId, error?.message ?? "");
}

const search = {
  indexId,
  query: text("a red cup"),
  targetModality: Modality.TEXT,
  consistencyTokens: [token],
};
const answer = await client.searchItems(search);
for (const item of answer.items) console.log(item.finalRank, item.itemId, item.similarity.toFixed(3));

for await (const { phase, answer } of client.streamSearchItems({ search })) {
  console.log("phase", phase, answer?.items.length);
}

// An error has gRPC's code, and Tandem's reason in the trailing metadata.
try {
  await client.searchItems({ indexId: "none", query: text("a cup") });
} catch (error) {
  if (!(error instanceof ConnectError)) throw error;
  console.log(Code[error.code], error.metadata.get("tandem-reason"));
}
