// The form: what a person types, drops or slides.

import { Modality } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import { HybridFusion } from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { byId, element } from "./elements.ts";
import { percent, timed } from "./figures.ts";
import { FilterField } from "./filter_field.ts";
import { addressOf } from "./pictures.ts";
import { targetOf, type Choices, type Query, type StoredItem } from "./search.ts";

const MAX_PICTURE_BYTES = 32 * 1024 * 1024;
/** The places of the slider "Time limit". */
export const DEADLINES_MS = [50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 5000, 10_000, 20_000, 30_000, 60_000];

type NotText = Exclude<Query, { kind: "text" }>;

/** The search form of the page. */
export class Form {
  readonly filter = new FilterField();
  private readonly form = byId("search", HTMLFormElement);
  private readonly words = byId("words", HTMLInputElement);
  private readonly file = byId("file", HTMLInputElement);
  private readonly chosen = byId("chosen", HTMLElement);
  private readonly index = byId("index", HTMLInputElement);
  private readonly depth = byId("depth", HTMLInputElement);
  private readonly cut = byId("cut", HTMLInputElement);
  private readonly deadline = byId("deadline", HTMLInputElement);
  private readonly fusion = byId("fusion", HTMLSelectElement);
  private readonly keywords = byId("keywords", HTMLInputElement);
  private other: NotText | null = null;
  private address: string | null = null;

  constructor(private readonly submitted: () => void, private readonly refused: (why: string) => void) {
    this.deadline.max = String(DEADLINES_MS.length - 1);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submitted();
    });
    for (const slider of [this.depth, this.cut, this.deadline]) {
      slider.addEventListener("input", () => this.showSliders());
      slider.addEventListener("change", () => {
        if (this.choices() !== null) this.submitted();
      });
    }
    this.file.addEventListener("change", () => void this.take(this.file.files?.[0]));
    this.words.addEventListener("paste", (event) => {
      const file = event.clipboardData?.files[0];
      if (file !== undefined) {
        event.preventDefault();
        void this.take(file);
      }
    });
    this.keywords.addEventListener("input", () => {
      // A person who names words wants them searched for.
      if (this.keywords.value.trim() !== "" && Number(this.fusion.value) === HybridFusion.UNSPECIFIED) {
        this.fusion.value = String(HybridFusion.RECIPROCAL_RANK);
      }
    });
    this.acceptDrops();
    this.showSliders();
  }

  /** Returns what was chosen; null if there is nothing to search with. */
  choices(): Choices | null {
    const text = this.words.value.trim();
    const query: Query | null = this.other ?? (text === "" ? null : { kind: "text", text });
    if (query === null) return null;
    const target = Number(byId("target", HTMLSelectElement).value) as Modality;
    return {
      query,
      indexId: this.indexId,
      target: targetOf(query, target),
      rerankDepth: this.depth.valueAsNumber,
      shownCount: Number(byId("shown", HTMLSelectElement).value),
      minProbability: this.cut.valueAsNumber / 100,
      maxFalseAnswerRate: Number(byId("false-answers", HTMLSelectElement).value),
      deadlineMs: this.deadlineMs,
      filterText: this.filter.text,
      isAdaptive: byId("adaptive", HTMLInputElement).checked,
      usesNeighbours: byId("neighbours", HTMLInputElement).checked,
      hybridFusion: Number(this.fusion.value) as HybridFusion,
      keywords: this.keywords.value.trim(),
    };
  }

  /** The index that is chosen. */
  get indexId(): string {
    return this.index.value.trim();
  }

  /** Searches by a stored item. */
  takeItem(item: StoredItem): void {
    const { itemId, modality, content } = item;
    const address = content?.data.case === "image" ? addressOf(content.data.value) : null;
    const picture = address === null ? "" : element("img", { src: address, alt: "" });
    this.takeOther({ kind: "item", itemId, modality }, itemId, picture, address);
    this.submitted();
  }

  /** Finds stored items of the same kind that are like this one. */
  takeSimilar(item: StoredItem): void {
    byId("target", HTMLSelectElement).value = String(item.modality);
    this.takeItem(item);
  }

  /** Searches by these words. */
  takeWords(words: string): void {
    this.dropOther();
    this.words.value = words;
    this.submitted();
  }

  /** Finds this kind from now on, beginning with the same query. */
  findInstead(kind: Modality): void {
    byId("target", HTMLSelectElement).value = String(kind);
    this.submitted();
  }

  /** Goes to the field to type in. */
  focus(): void {
    this.words.focus();
    this.words.select();
  }

  private get deadlineMs(): number {
    return DEADLINES_MS[this.deadline.valueAsNumber] ?? 10_000;
  }

  /** Says what the sliders are set to. */
  showSliders(): void {
    const depth = this.depth.valueAsNumber;
    const cut = this.cut.valueAsNumber;
    this.show(this.depth, depth === 0 ? "off" : String(depth));
    this.show(this.cut, cut === 0 ? "off" : percent(cut / 100));
    this.show(this.deadline, timed(this.deadlineMs));
  }

  private show(slider: HTMLInputElement, value: string): void {
    byId(`${slider.id}-value`, HTMLOutputElement).textContent = value;
    slider.setAttribute("aria-valuetext", value);
  }

  private async take(file: File | undefined): Promise<void> {
    this.file.value = "";
    if (file === undefined) return;
    if (file.size > MAX_PICTURE_BYTES) {
      this.refused(`${file.name} is over 32 MiB. Scale it down.`);
      return;
    }
    const bytes = new Uint8Array(await file.arrayBuffer());
    const address = addressOf(bytes);
    const picture = element("img", { src: address, alt: "" });
    this.takeOther({ kind: "image", bytes, name: file.name }, file.name, picture, address);
    this.submitted();
  }

  private takeOther(query: NotText, name: string, picture: Node | string, address: string | null): void {
    this.dropOther();
    this.other = query;
    this.address = address;
    const remove = element("button", { type: "button", "aria-label": `Remove ${name}, search by words` }, "×");
    remove.addEventListener("click", () => {
      this.dropOther();
      this.focus();
    });
    this.chosen.replaceChildren(picture, element("span", { class: "name" }, name), remove);
    this.form.classList.add("has-other");
  }

  private dropOther(): void {
    if (this.address !== null) URL.revokeObjectURL(this.address);
    this.address = this.other = null;
    this.chosen.replaceChildren();
    this.form.classList.remove("has-other");
  }

  private acceptDrops(): void {
    const body = document.body;
    const hasFile = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    body.addEventListener("dragover", (event) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      body.classList.add("dropping");
    });
    body.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) body.classList.remove("dropping");
    });
    body.addEventListener("drop", (event) => {
      body.classList.remove("dropping");
      if (!hasFile(event)) return;
      event.preventDefault();
      void this.take(event.dataTransfer?.files[0]);
    });
  }
}
