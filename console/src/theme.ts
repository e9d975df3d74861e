// Light or dark: as the system has it, until a person chooses.

import { byId } from "./elements.ts";

const STORED = "tandem-theme";

/** Applies the stored choice, and lets the button change it. */
export function startTheme(): void {
  const root = document.documentElement;
  const button = byId("theme", HTMLButtonElement);
  const isDark = () =>
    root.dataset["theme"] === undefined
      ? matchMedia("(prefers-color-scheme: dark)").matches
      : root.dataset["theme"] === "dark";
  const label = () => {
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    button.textContent = isDark() ? "☀" : "☾";
  };
  const stored = localStorage.getItem(STORED);
  if (stored === "dark" || stored === "light") root.dataset["theme"] = stored;
  button.addEventListener("click", () => {
    root.dataset["theme"] = isDark() ? "light" : "dark";
    localStorage.setItem(STORED, root.dataset["theme"]);
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();
}
