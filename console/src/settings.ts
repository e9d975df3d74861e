// What the operator chose for this page: a note on top, and where traces and dashboards are.

import { byId, element, type Child } from "./elements.ts";

interface Settings {
  readonly note?: unknown;
  readonly traceUrl?: unknown;
  readonly dashboardUrl?: unknown;
}

let settings: Settings = {};

/** Reads the settings, and shows the note; without them the page works as well. */
export async function startSettings(): Promise<void> {
  try {
    const response = await fetch("console.json");
    if (response.ok) settings = (await response.json()) as Settings;
  } catch {
    return;
  }
  const note = byId("model-note", HTMLElement);
  note.textContent = typeof settings.note === "string" ? settings.note : "";
  note.hidden = note.textContent === "";
}

/** Shows where the trace of a search, and the dashboards, are. */
export function showLinks(traceId: string): void {
  const trace = link(settings.traceUrl, "open it", traceId);
  const dashboard = link(settings.dashboardUrl, "Dashboards", traceId);
  const parts: Child[] = ["Trace ", element("code", {}, traceId)];
  if (trace !== null) parts.push(" – ", trace);
  if (dashboard !== null) parts.push(" · ", dashboard);
  byId("links", HTMLElement).replaceChildren(element("span", {}, ...parts));
}

function link(template: unknown, name: string, traceId: string): HTMLElement | null {
  // Never another scheme, such as one that runs a script.
  if (typeof template !== "string" || !/^https?:\/\//.test(template)) return null;
  const href = template.replace("{trace_id}", traceId);
  return element("a", { href, target: "_blank", rel: "noreferrer" }, name);
}
