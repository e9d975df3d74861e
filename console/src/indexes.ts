// Knows the indexes that there are: their names for the field, and their items for the start page.

import { Modality } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import type { IndexSummary } from "../../clients/typescript/gen/tandem/v1/index_service_pb.js";
import { byId, element } from "./elements.ts";
import { counted } from "./figures.ts";

const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  scenes: ["two birds left of one alarm clock", "three dogs", "ein Boot über zwei Äpfeln"],
};
const OTHER_EXAMPLES = ["a dog", "people at a table", "a red car at night"];

/** The field of the index, and what is said of the index that is chosen. */
export class Indexes {
  private readonly field = byId("index", HTMLInputElement);
  private readonly names = byId("indexes", HTMLDataListElement);
  private readonly start = byId("start", HTMLElement);
  private listed: readonly IndexSummary[] | null = null;

  constructor(
    private readonly list: () => Promise<readonly IndexSummary[]>,
    private readonly searchFor: (words: string) => void,
    changed: () => void,
  ) {
    this.field.addEventListener("focus", () => void this.refresh());
    this.field.addEventListener("change", () => {
      this.show();
      changed();
    });
  }

  /** Asks which indexes there are; a server that does not say changes nothing. */
  async refresh(): Promise<void> {
    try {
      this.listed = await this.list();
    } catch {
      return;
    }
    this.names.replaceChildren(...this.listed.map(({ indexId }) => element("option", { value: indexId })));
    const isFirst = this.field.value === this.field.defaultValue && document.activeElement !== this.field;
    const only = this.listed[0];
    if (isFirst && this.chosen() === undefined && only !== undefined) {
      this.field.value = this.field.defaultValue = only.indexId;
    }
    this.show();
  }

  /** Returns how many items of a kind the chosen index has; null if that is not known. */
  count(kind: Modality): bigint | null {
    const chosen = this.chosen();
    if (chosen === undefined) return null;
    return kind === Modality.IMAGE ? chosen.imageCount : chosen.textCount;
  }

  private chosen(): IndexSummary | undefined {
    return this.listed?.find(({ indexId }) => indexId === this.field.value.trim());
  }

  /** Says what the chosen index has. */
  show(): void {
    this.start.replaceChildren(...(this.listed === null ? [] : this.startWords(this.listed)));
  }

  private startWords(listed: readonly IndexSummary[]): HTMLElement[] {
    const chosen = this.chosen();
    if (listed.length === 0) {
      const command = element("code", {}, "tandem ingest FOLDER");
      return [element("p", {}, "Nothing is stored yet. Store pictures with ", command, ".")];
    }
    if (chosen === undefined) {
      const names = listed.map(({ indexId }) => indexId).join(", ");
      return [element("p", {}, `There is no index of this name. There are: ${names}.`)];
    }
    const { indexId, imageCount, textCount } = chosen;
    const has = `${counted(imageCount, "picture")} and ${counted(textCount, "text")}`;
    const examples = (EXAMPLES[indexId] ?? OTHER_EXAMPLES).map((words) => {
      const button = element("button", { type: "button", class: "quiet" }, words);
      button.addEventListener("click", () => this.searchFor(words));
      return button;
    });
    return [
      element("p", {}, element("b", {}, indexId), ` has ${has}. Describe one, or try:`),
      element("p", { class: "examples" }, ...examples),
    ];
  }
}
