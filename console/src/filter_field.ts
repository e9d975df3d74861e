// The filter, with the server's complaint under the character that it is about.

import { byId } from "./elements.ts";

const MEASURED = "0".repeat(100);

/** The filter's text field. */
export class FilterField {
  private readonly input = byId("filter", HTMLInputElement);
  private readonly fault = byId("filter-fault", HTMLElement);
  private readonly caret = byId("filter-caret", HTMLElement);
  private position: number | null = null;

  constructor() {
    this.input.addEventListener("input", () => this.clear());
    this.input.addEventListener("scroll", () => this.placeCaret());
    new ResizeObserver(() => this.placeCaret()).observe(this.input);
  }

  get text(): string {
    return this.input.value.trim() === "" ? "" : this.input.value;
  }

  /** Adds a condition to those that there are. */
  add(condition: string): void {
    const before = this.text;
    const all = /\bor\b/.test(before) ? `(${before})` : before;
    this.input.value = all === "" ? condition : `${all} and ${condition}`;
    this.clear();
  }

  /** Removes the complaint. */
  clear(): void {
    this.position = null;
    this.input.removeAttribute("aria-invalid");
    this.fault.textContent = "";
    this.caret.hidden = true;
  }

  /** Shows a complaint, under a character if it names one, and moves the cursor there. */
  complain(message: string, position: number | null): void {
    this.position = position;
    this.input.setAttribute("aria-invalid", "true");
    this.fault.textContent = message;
    this.input.focus();
    if (position !== null) {
      // The server counts code points, the field counts UTF-16 units.
      const units = [...this.input.value].slice(0, position).join("").length;
      this.input.setSelectionRange(units, Math.min(units + 1, this.input.value.length));
    }
    this.placeCaret();
  }

  private placeCaret(): void {
    this.caret.hidden = this.position === null;
    if (this.position === null) return;
    const style = getComputedStyle(this.input);
    const context = document.createElement("canvas").getContext("2d");
    if (context === null) return;
    context.font = style.font || `${style.fontSize} ${style.fontFamily}`;
    const before = [...this.input.value].slice(0, this.position).join("");
    const width = context.measureText(before).width;
    const character = context.measureText(MEASURED).width / MEASURED.length;
    const start = Number.parseFloat(style.paddingLeft) + Number.parseFloat(style.borderLeftWidth);
    const left = start + width + character / 2 - this.input.scrollLeft;
    this.caret.style.left = `${Math.max(0, Math.min(left, this.input.clientWidth))}px`;
  }
}
