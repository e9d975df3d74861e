// Shows what an index holds: at random or in the order of ids, by a prefix of ids and by a filter.

import { Modality } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import type { Item } from "../../clients/typescript/gen/tandem/v1/index_service_pb.js";
import { byId, element } from "./elements.ts";
import { counted } from "./figures.ts";
import type { Form } from "./form.ts";
import type { Indexes } from "./indexes.ts";
import { Pictures } from "./pictures.ts";
import { problemOf } from "./problems.ts";
import type { Server, StoredItem } from "./search.ts";
import { showValues } from "./values.ts";

const SHOWN_COUNT = 18;
const MAX_FETCHED_COUNT = 256;
// Where texts lie between pictures, some calls find no picture.
const MAX_FETCHES = 6;

/** The part of the page that is there as long as nothing is searched for. */
export class Browser {
  private readonly area = byId("browse", HTMLElement);
  private readonly opener = byId("browse-open", HTMLButtonElement);
  private readonly order = byId("order", HTMLSelectElement);
  private readonly prefix = byId("prefix", HTMLInputElement);
  private readonly status = byId("browse-status", HTMLElement);
  private readonly cards = byId("cards", HTMLUListElement);
  private readonly more = byId("more", HTMLButtonElement);
  private readonly pictures = new Pictures();
  private running = new AbortController();
  private listed: Item[] = [];
  private waiting: string[] = [];
  private pageToken = "";

  constructor(
    private readonly server: Server,
    private readonly form: Form,
    private readonly indexes: Indexes,
    begin: () => void,
  ) {
    byId("browse-form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      begin();
    });
    byId("values", HTMLDetailsElement).open = matchMedia("(min-width: 761px)").matches;
    this.order.addEventListener("change", begin);
    this.prefix.addEventListener("change", begin);
    this.more.addEventListener("click", () => void this.show(this.running.signal));
    this.addFilter = (condition) => {
      form.filter.add(condition);
      byId("options", HTMLDetailsElement).open = true;
      begin();
      // The button that was clicked goes.
      this.status.focus();
    };
  }

  get isOpen(): boolean {
    return !this.area.hidden;
  }

  /** Begins with the first items that the form's filter and the prefix select. */
  async open(): Promise<void> {
    this.close();
    this.opener.hidden = true;
    this.area.hidden = false;
    const { signal } = (this.running = new AbortController());
    this.pictures.forget();
    this.cards.replaceChildren();
    this.listed = this.waiting = [];
    this.pageToken = "";
    this.status.textContent = "Reading the index…";
    try {
      await this.list(signal);
    } catch (error) {
      this.fail(error, signal);
      return;
    }
    await this.show(signal);
  }

  /** Makes way for a search. */
  close(): void {
    this.running.abort();
    this.area.hidden = true;
    this.opener.hidden = false;
  }

  private readonly addFilter: (condition: string) => void;

  private get isSelected(): boolean {
    return this.form.filter.text !== "" || this.prefix.value !== "";
  }

  private get wantedShare(): number {
    const pictureCount = Number(this.indexes.count(Modality.IMAGE) ?? 0n);
    const textCount = Number(this.indexes.count(Modality.TEXT) ?? 0n);
    return this.isSelected || pictureCount === 0 ? 1 : pictureCount / (pictureCount + textCount);
  }

  private async list(signal: AbortSignal): Promise<void> {
    const selection = { idPrefix: this.prefix.value, filterText: this.form.filter.text };
    const asked = { pageToken: this.pageToken, ...(this.isSelected ? { selection } : {}) };
    const page = await this.server.list(this.form.indexId, asked, signal);
    if (signal.aborted) return;
    this.listed = [...this.listed, ...page.items];
    const ids = [...page.itemIds];
    if (this.order.value === "") shuffle(ids);
    this.waiting = [...this.waiting, ...ids];
    this.pageToken = page.nextPageToken;
    this.status.textContent = this.words();
    showValues(this.listed.map(({ attributes }) => attributes), this.addFilter);
  }

  private words(): string {
    const count = this.listed.length;
    const items = counted(count, "item");
    if (!this.isSelected) {
      if (count === 0) return "";
      const isRandom = this.order.value === "";
      const of = `${this.pageToken === "" ? "" : isRandom ? "Of the first " : "More than "}${items}`;
      return `${of}, ${isRandom ? "at random" : "by id"}. A click finds similar ones.`;
    }
    if (count === 0) return "No item matches.";
    return `${this.pageToken === "" ? "" : "More than "}${items} ${count === 1 ? "matches" : "match"}.`;
  }

  private async show(signal: AbortSignal): Promise<void> {
    this.more.disabled = true;
    try {
      // A look at the index is one at its pictures; who selects gets what was selected.
      const found: StoredItem[] = [];
      const others: StoredItem[] = [];
      for (let fetches = 0; found.length < SHOWN_COUNT && fetches < MAX_FETCHES; fetches += 1) {
        if (this.waiting.length === 0 && this.pageToken !== "") await this.list(signal);
        const likely = (SHOWN_COUNT - found.length) / this.wantedShare;
        const ids = this.waiting.splice(0, Math.min(Math.round(likely), MAX_FETCHED_COUNT));
        if (ids.length === 0) break;
        for (const item of await this.server.fetch(this.form.indexId, ids, signal)) {
          (this.isSelected || item.modality === Modality.IMAGE ? found : others).push(item);
        }
      }
      if (signal.aborted) return;
      this.waiting.unshift(...found.splice(SHOWN_COUNT).map(({ itemId }) => itemId));
      const shown = found.length > 0 ? found : others.slice(0, SHOWN_COUNT);
      this.cards.append(...shown.map((item) => this.card(item)));
    } catch (error) {
      this.fail(error, signal);
    }
    this.more.disabled = false;
    this.more.hidden = this.waiting.length === 0 && this.pageToken === "";
  }

  private card(item: StoredItem): HTMLElement {
    const kind = item.modality === Modality.IMAGE ? "pictures" : "texts";
    return element(
      "li",
      {},
      element(
        "button",
        { type: "button", title: `Find similar ${kind}`, click: () => this.form.takeSimilar(item) },
        element("span", { class: "frame" }, this.pictures.shown(item.itemId, item.content)),
        element("span", { class: "id" }, item.itemId),
        element("span", { class: "unseen" }, `, find similar ${kind}`),
      ),
    );
  }

  private fail(error: unknown, signal: AbortSignal): void {
    if (signal.aborted) return;
    const { message, reason, filterPosition } = problemOf(error);
    this.more.hidden = true;
    const isFilter = reason === "FILTER_INVALID";
    this.status.textContent = isFilter ? "" : message;
    showValues([], this.addFilter);
    if (isFilter || reason === "UNAUTHENTICATED") byId("options", HTMLDetailsElement).open = true;
    if (isFilter) this.form.filter.complain(message, filterPosition);
  }
}

function shuffle(ids: string[]): void {
  for (let at = ids.length - 1; at > 0; at -= 1) {
    const other = Math.floor(Math.random() * (at + 1));
    [ids[at], ids[other]] = [ids[other] as string, ids[at] as string];
  }
}
