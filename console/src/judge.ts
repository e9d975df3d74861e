// The page for judging a golden set: shows pairs one after the other, and sends each judgement to
// the server of `tandem golden judge`, which alone keeps them.

import { byId, element } from "./elements.ts";
import { addressOf } from "./pictures.ts";
import { startTheme } from "./theme.ts";

type Pair = readonly [queryId: string, itemId: string];
interface Pairs {
  readonly pool: Readonly<Record<string, readonly string[]>>;
  readonly grades: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

const token = location.hash.slice(1);
const main = byId("main", HTMLElement);
const problem = byId("problem", HTMLElement);
const progress = byId("progress", HTMLElement);
const buttons = ["match", "other", "skip", "undo"].map((id) => byId(id, HTMLButtonElement));

let left: Pair[] = [];
let pairCount = 0;
let goneCount = 0;
const judged: Pair[] = [];
let isBusy = true;

async function call(path: string, body?: unknown): Promise<Response> {
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const answer = await fetch(path, { headers: { "x-golden-token": token }, ...sent });
  if (!answer.ok && answer.status !== 404) throw new Error(await answer.text());
  return answer;
}

/** Returns an element that shows a query or an item; null for an item that is gone. */
async function shown(kind: string, id: string): Promise<HTMLElement | null> {
  const answer = await call(`/${kind}/${encodeURIComponent(id)}`);
  if (answer.status === 404) return null;
  if (answer.headers.get("content-type") === "text/plain") {
    return element("span", { class: "text-item", dir: "auto" }, await answer.text());
  }
  const address = addressOf(new Uint8Array(await answer.arrayBuffer()));
  const picture = element("img", { alt: kind === "item" ? "The found picture" : "The query" });
  picture.addEventListener("load", () => URL.revokeObjectURL(address));
  picture.addEventListener("error", () => picture.replaceWith("This picture cannot be shown: skip it."));
  picture.src = address;
  return picture;
}

async function showNext(): Promise<void> {
  const places = [byId("query", HTMLElement), byId("item", HTMLElement)] as const;
  for (;;) {
    const pair = left[0];
    progress.textContent = progressWords();
    if (pair === undefined) {
      places[0].replaceChildren("All pairs are judged. You can close this page.");
      places[1].replaceChildren();
      return;
    }
    const [query, item] = await Promise.all([shown("query", pair[0]), shown("item", pair[1])]);
    if (query !== null && item !== null) {
      places[0].replaceChildren(query);
      places[1].replaceChildren(item);
      return;
    }
    left.shift();
    goneCount += 1;
  }
}

function progressWords(): string {
  const done = pairCount - left.length - goneCount;
  const gone = goneCount === 0 ? "" : `; ${goneCount.toLocaleString("en")} no longer in the index`;
  return `${done.toLocaleString("en")} of ${pairCount.toLocaleString("en")} pairs judged${gone}`;
}

/** Does one thing at a time; an error keeps the pair that is shown. */
async function run(work: () => Promise<void>): Promise<void> {
  isBusy = true;
  main.setAttribute("aria-busy", "true");
  try {
    await work();
    problem.hidden = true;
  } catch (error) {
    const why = error instanceof TypeError ? "the server does not answer; start tandem golden judge again" : String(error);
    problem.textContent = `Not done: ${why}. Nothing judged before is lost.`;
    problem.hidden = false;
  } finally {
    isBusy = false;
    main.setAttribute("aria-busy", "false");
    for (const button of buttons) {
      button.disabled = button.id === "undo" ? judged.length === 0 : left.length === 0;
    }
  }
}

async function act(action: string): Promise<void> {
  const pair = left[0];
  if (action === "undo") {
    const last = judged.at(-1);
    if (last === undefined) return;
    await call("/judgement", null);
    judged.pop();
    left.unshift(last);
  } else if (pair !== undefined) {
    if (action === "skip") left.push(pair);
    else {
      await call("/judgement", [...pair, action === "match" ? 1 : 0]);
      judged.push(pair);
    }
    left.shift();
  }
  await showNext();
}

async function start(): Promise<void> {
  const { pool, grades } = (await (await call("/pairs/")).json()) as Pairs;
  const pairs = Object.entries(pool).flatMap(([query, items]) => items.map((item): Pair => [query, item]));
  pairCount = pairs.length;
  left = pairs.filter(([query, item]) => grades[query]?.[item] === undefined);
  await showNext();
}

const KEYS: Readonly<Record<string, string>> = { m: "match", n: "other", s: "skip", u: "undo" };
for (const button of buttons) {
  button.addEventListener("click", () => {
    if (!isBusy) void run(() => act(button.id));
  });
}
addEventListener("keydown", (event) => {
  const action = KEYS[event.key.toLowerCase()];
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.repeat;
  if (action !== undefined && isPlain && !isBusy) void run(() => act(action));
});
startTheme();
void run(start);
