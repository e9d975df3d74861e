// Shows where the time of a search went: one bar of its stages, and their figures.

import type { StageDurations } from "../../clients/typescript/gen/tandem/v1/search_service_pb.js";
import { byId, element } from "./elements.ts";
import { milliseconds, timed } from "./figures.ts";

/** Shows the durations of an answer. */
export function showStages(durations: StageDurations | undefined, deadlineMs: number): void {
  const area = byId("stages", HTMLElement);
  if (durations === undefined) {
    area.replaceChildren();
    return;
  }
  const stages = [
    ["encode", milliseconds(durations.encodeDuration)],
    ["retrieve", milliseconds(durations.retrieveDuration)],
    ["rerank", milliseconds(durations.rerankDuration)],
    ["neighbours", milliseconds(durations.neighboursDuration)],
    ["rank", milliseconds(durations.rankDuration)],
    ["fetch", milliseconds(durations.fetchDuration)],
  ] as const;
  const spent = stages.filter(([, ms]) => ms > 0);
  const total = milliseconds(durations.totalDuration);
  const bar = element("div", { class: "bar", "aria-hidden": "true" });
  for (const [name, ms] of spent) {
    const part = element("span", { class: `stage of-${name}`, title: `${name} ${timed(ms)}` });
    part.style.flexGrow = String(Math.max(ms, total / 200));
    bar.append(part);
  }
  const legend = element(
    "ul",
    { class: "legend" },
    ...spent.map(([name, ms]) =>
      element("li", {}, element("span", { class: `swatch of-${name}` }), `${name} `, element("b", {}, timed(ms))),
    ),
  );
  const head = element(
    "p",
    { class: "total" },
    element("b", {}, timed(total)),
    ` in the server, of ${timed(deadlineMs)} allowed`,
  );
  area.replaceChildren(head, bar, legend);
}
