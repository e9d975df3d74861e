// Writes numbers as people read them.

import type { Duration } from "@bufbuild/protobuf/wkt";

const COUNT = new Intl.NumberFormat("en");

/** Returns a count with its thousands marked. */
export function counted(count: number | bigint, one: string, many: string = `${one}s`): string {
  return `${COUNT.format(count)} ${Number(count) === 1 ? one : many}`;
}

/** Returns "1st", "2nd" and so on. */
export function ordinal(rank: number): string {
  const lastTwo = rank % 100;
  const ending = lastTwo >= 11 && lastTwo <= 13 ? "th" : (["th", "st", "nd", "rd"][rank % 10] ?? "th");
  return `${COUNT.format(rank)}${ending}`;
}

/** Returns a probability in percent, never 0 or 100 unless it is. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  if (value < 100 && value > 99.9) return "> 99.9 %";
  return `${value >= 10 ? Math.round(value) : value.toFixed(1)} %`;
}

/** Returns a recall in percent, to a tenth, and never 100 unless it is. */
export function recallPercent(recall: number): string {
  return `${recall === 1 ? "100" : (Math.floor(recall * 1000 + 1e-6) / 10).toFixed(1)} %`;
}

/** Returns milliseconds. */
export function milliseconds(duration: Duration | undefined): number {
  return duration === undefined ? 0 : Number(duration.seconds) * 1000 + duration.nanos / 1e6;
}

/** Returns a time with its unit. */
export function timed(ms: number): string {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms % 1000 === 0 ? 0 : 1)} s`;
  return ms >= 10 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`;
}
