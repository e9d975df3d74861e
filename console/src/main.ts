// The page: runs searches and puts their answers on it.

import { Modality } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import type { RankedItem, SearchItemsResponse } from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { Details } from "./details.ts";
import { Browser } from "./browse.ts";
import { byId, element } from "./elements.ts";
import { timed } from "./figures.ts";
import { Form } from "./form.ts";
import { Indexes } from "./indexes.ts";
import { IndexState } from "./index_state.ts";
import { readLink, writeLink } from "./link.ts";
import { Orders } from "./orders.ts";
import { problemOf } from "./problems.ts";
import { Server, type Choices, type Phase, type Query } from "./search.ts";
import { showLinks, startSettings } from "./settings.ts";
import { showShards } from "./shards.ts";
import { showStages } from "./stages.ts";
import { startTheme } from "./theme.ts";
import { coverageWords, degradationWords, emptyWords, rerankWords } from "./words.ts";

const server = new Server(location.origin);
const status = byId("status", HTMLElement);
const problem = byId("problem", HTMLElement);
const degraded = byId("degraded", HTMLUListElement);
const answerArea = byId("answer", HTMLElement);

const form = new Form(() => void search(), showProblem);
const details = new Details(
  (item: RankedItem) => form.takeItem(item),
  (text, pictures, signal) => server.score(text, pictures, signal),
);
const orders = new Orders(
  (item) => details.open(item, final, searched),
  (item) => form.takeSimilar(item),
);

const indexes = new Indexes(
  () => {
    takeToken();
    return server.indexes();
  },
  (words) => form.takeWords(words),
  () => {
    if (browser.isOpen) browse();
  },
);

const browser = new Browser(server, form, indexes, browse);
byId("browse-open", HTMLButtonElement).addEventListener("click", () => form.takeWords(""));
byId("filter", HTMLInputElement).addEventListener("change", () => {
  if (browser.isOpen) browse();
});

const state = new IndexState((signal) => {
  takeToken();
  return server.index(form.indexId, signal);
});

let running: AbortController | null = null;
/** Whether the address says what is searched for, so that it is no new step of the history. */
let isRestoring = false;
let searched: Query | null = null;
let final: SearchItemsResponse | null = null;

async function search(): Promise<void> {
  const choices = form.choices();
  if (choices === null) {
    browse();
    return;
  }
  if (!isRestoring) writeLink(linkedTo(choices.query));
  browser.close();
  running?.abort();
  const own = (running = new AbortController());
  takeToken();
  begin();
  searched = choices.query;
  document.title = `${titleOf(choices.query)} – Tandem`;
  try {
    let retrievedAfterMs = 0;
    for await (const phase of server.answers(choices, own.signal)) {
      if (own.signal.aborted) return;
      if (phase.isFinal) showFinal(phase, choices, retrievedAfterMs);
      else showRetrieved(phase, (retrievedAfterMs = phase.afterMs));
    }
  } catch (error) {
    if (!own.signal.aborted) fail(error);
  } finally {
    if (running === own) {
      running = null;
      answerArea.setAttribute("aria-busy", "false");
    }
  }
}

/** Shows what the index holds, instead of a search's answer. */
function browse(): void {
  if (!isRestoring) writeLink({});
  running?.abort();
  takeToken();
  for (const id of ["problem", "answer"]) byId(id, HTMLElement).hidden = true;
  byId("start", HTMLElement).hidden = false;
  status.textContent = "";
  document.title = "Tandem: search pictures and texts";
  void browser.open();
}

/** Begins with the search that the address names, or with the index. */
async function start(): Promise<void> {
  await indexes.refresh();
  // Meanwhile one may have searched.
  if (searched !== null) return;
  if (location.hash !== "") return restore();
  isRestoring = true;
  browse();
  isRestoring = false;
}

/** Does what the address says. */
async function restore(): Promise<void> {
  const { hash } = location;
  const link = readLink();
  form.showSliders();
  if (form.filter.text !== "") byId("options", HTMLDetailsElement).open = true;
  indexes.show();
  const itemId = link.get("item");
  let take = () => form.takeWords(link.get("text") ?? "");
  if (itemId !== null) {
    takeToken();
    const found = await server.fetch(form.indexId, [itemId]).catch(() => []);
    const item = found[0] ?? { itemId, modality: Modality.IMAGE };
    take = () => form.takeItem(item);
  }
  // Meanwhile one may have gone back again.
  if (location.hash !== hash) return;
  isRestoring = true;
  take();
  isRestoring = false;
}

function linkedTo(query: Query): Readonly<Record<string, string>> {
  if (query.kind === "text") return { text: query.text };
  return query.kind === "item" ? { item: query.itemId } : {};
}

function titleOf(query: Query): string {
  if (query.kind === "text") return query.text;
  return query.kind === "image" ? query.name : query.itemId;
}

function takeToken(): void {
  server.token = byId("token", HTMLInputElement).value.trim();
}

function begin(): void {
  final = null;
  problem.hidden = true;
  byId("start", HTMLElement).hidden = true;
  form.filter.clear();
  degraded.replaceChildren();
  answerArea.setAttribute("aria-busy", "true");
  answerArea.classList.add("searching");
  status.textContent = "Searching…";
}

function showRetrieved({ answer }: Phase, afterMs: number): void {
  answerArea.classList.remove("searching");
  answerArea.hidden = false;
  orders.showRetrieved(answer);
  status.textContent = `Retrieved after ${timed(afterMs)}. The cross-encoder reads…`;
}

function showFinal(phase: Phase, choices: Choices, retrievedAfterMs: number): void {
  const { answer, afterMs } = phase;
  final = answer;
  orders.showFinal(answer);
  showStages(answer.durations, choices.deadlineMs);
  degraded.replaceChildren(
    ...degradationWords(answer, choices.rerankDepth).map((each) => element("li", {}, each)),
  );
  if (answer.items.length === 0) showEmpty(answer, choices);
  else {
    const order = `First order after ${timed(retrievedAfterMs)}, final order after ${timed(afterMs)}.`;
    const isWhole = answer.coverage?.missingShards.length === 0;
    const covered = isWhole ? coverageWords(answer.coverage) : "";
    status.textContent = [order, rerankWords(answer), covered].join(" ");
  }
  showShards(answer.retrievals);
  showLinks(phase.traceId);
}

function showEmpty(answer: SearchItemsResponse, choices: Choices): void {
  const other = choices.target === Modality.TEXT ? Modality.IMAGE : Modality.TEXT;
  const otherCount = indexes.count(other);
  status.replaceChildren(emptyWords(answer, choices, otherCount));
  if (answer.coverage?.coveredItemCount !== 0n || otherCount === null || otherCount === 0n) return;
  const find = other === Modality.TEXT ? "Find texts" : "Find pictures";
  const button = element("button", { type: "button", class: "quiet" }, find);
  button.addEventListener("click", () => form.findInstead(other));
  status.append(" ", button);
}

function fail(error: unknown): void {
  const { message, reason, filterPosition, isNetwork } = problemOf(error);
  if (isNetwork) state.markStale();
  status.textContent = "";
  answerArea.classList.remove("searching");
  if (reason === "FILTER_INVALID") {
    form.filter.complain(message, filterPosition);
    byId("options", HTMLDetailsElement).open = true;
    return;
  }
  if (reason === "UNAUTHENTICATED") byId("options", HTMLDetailsElement).open = true;
  orders.clear();
  answerArea.hidden = true;
  showProblem(message);
}

function showProblem(message: string): void {
  problem.textContent = message;
  problem.hidden = false;
}

startTheme();
void startSettings();
form.focus();
addEventListener("popstate", () => void restore());
void start();
