// Shows where the cross-encoder looks for words that a person chooses, as heat over the picture.

import { element } from "./elements.ts";
import { GRID_SIDE, Occlusion, placeWords, type Score } from "./occlusion.ts";
import { problemOf } from "./problems.ts";

const COLOUR = [226, 74, 12] as const;
const MOST_OPAQUE = 0.82;
// Faint heat everywhere would hide where it is.
const GAMMA = 1.5;

/** The words of a text as buttons, and the heat of those that are pressed. */
export class HeatMap {
  readonly area = element("div", { class: "heat" });
  private readonly status = element("p", { class: "faint", role: "status" });
  private readonly overlay = element("canvas", { class: "overlay", "aria-hidden": "true" });
  private occlusion: Promise<Occlusion> | null = null;
  private running: AbortController | null = null;
  private readonly buttons: HTMLButtonElement[];

  constructor(
    text: string,
    private readonly picture: Uint8Array,
    shown: HTMLElement,
    private readonly score: Score,
  ) {
    this.buttons = text
      .split(/\s+/)
      .filter((word) => word !== "")
      .map((word) => element("button", { type: "button", class: "word", "aria-pressed": "false" }, word));
    for (const button of this.buttons) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        void this.show();
      });
    }
    this.overlay.hidden = true;
    shown.append(this.overlay);
    this.status.textContent = "Choose the words of one thing, such as “two” and “dogs”.";
    this.area.append(
      element("h3", {}, "Where the cross-encoder looks"),
      element("div", { class: "words", role: "group", "aria-label": "Words to look for" }, ...this.buttons),
      this.status,
    );
  }

  /** Stops what is being computed. */
  close(): void {
    this.running?.abort();
  }

  private async show(): Promise<void> {
    this.running?.abort();
    const own = (this.running = new AbortController());
    const isChosen = (button: HTMLButtonElement) => button.getAttribute("aria-pressed") === "true";
    const chosen = wordsOf(this.buttons.filter(isChosen));
    const rest = wordsOf(this.buttons.filter((button) => !isChosen(button)));
    if (chosen === "") {
      this.overlay.hidden = true;
      this.status.textContent = "";
      return;
    }
    this.status.textContent = `Hiding ${GRID_SIDE * GRID_SIDE} parts of the picture, one after the other…`;
    try {
      this.occlusion ??= Occlusion.of(this.picture, this.score);
      const heat = await (await this.occlusion).heat(chosen, rest, own.signal);
      if (own.signal.aborted) return;
      this.draw(heat);
      this.status.textContent = `It finds “${chosen}” mostly ${placeWords(heat)}: hiding that takes most from these words, compared with the others.`;
    } catch (error) {
      if (!own.signal.aborted) this.status.textContent = problemOf(error).message;
    }
  }

  private draw(heat: readonly number[]): void {
    const cells = new ImageData(GRID_SIDE, GRID_SIDE);
    heat.forEach((value, at) => {
      const opacity = Math.max(0, value) ** GAMMA * MOST_OPAQUE;
      cells.data.set([...COLOUR, Math.round(opacity * 255)], at * 4);
    });
    const small = document.createElement("canvas");
    small.width = small.height = GRID_SIDE;
    small.getContext("2d")?.putImageData(cells, 0, 0);
    this.overlay.width = this.overlay.height = GRID_SIDE * 32;
    const context = this.overlay.getContext("2d");
    if (context !== null) {
      context.imageSmoothingQuality = "high";
      context.drawImage(small, 0, 0, this.overlay.width, this.overlay.height);
    }
    this.overlay.hidden = false;
  }
}

function wordsOf(buttons: readonly HTMLButtonElement[]): string {
  return buttons.map((button) => button.textContent ?? "").join(" ");
}
