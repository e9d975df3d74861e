// Says what went wrong with a call, and finds the place of a filter's fault.

import { Code, ConnectError } from "@connectrpc/connect";

export interface Problem {
  /** The name of Tandem's reason, for example "FILTER_INVALID"; empty for others' errors. */
  readonly reason: string;
  readonly message: string;
  /** Whether nothing answers at all. */
  readonly isNetwork: boolean;
  /** In the filter's text, from 0. */
  readonly filterPosition: number | null;
}

const HINTS: Readonly<Record<string, string>> = {
  UNAUTHENTICATED: "Enter a token under “Filter and more”.",
  PERMISSION_DENIED: "The token does not allow this.",
  DEADLINE_EXCEEDED: "Allow more time with the slider “Time limit”.",
};

/** Returns what a person needs to know of an error. */
export function problemOf(error: unknown): Problem {
  const connect = ConnectError.from(error);
  const reason = reasonOf(connect);
  const isNetwork = reason === "" && connect.code === Code.Unknown;
  const message = isNetwork
    ? "The server does not answer. Is it still running?"
    : sentence(connect.rawMessage || Code[connect.code] || "unknown");
  const hint = HINTS[reason === "" ? "" : reason];
  return {
    reason,
    isNetwork,
    message: hint === undefined ? message : `${message} ${hint}`,
    filterPosition: reason === "FILTER_INVALID" ? positionIn(connect.rawMessage) : null,
  };
}

function reasonOf(error: ConnectError): string {
  for (const detail of error.details) {
    if ("debug" in detail && typeof detail.debug === "object" && detail.debug !== null) {
      const { reason } = detail.debug as { reason?: unknown };
      if (typeof reason === "string") return reason;
    }
  }
  const named = error.metadata.get("tandem-reason");
  if (named !== null) return named;
  return error.code === Code.DeadlineExceeded ? "DEADLINE_EXCEEDED" : "";
}

function positionIn(message: string): number | null {
  const found = /\(at character (\d+) of its text\)/.exec(message);
  return found === null ? null : Number(found[1]) - 1;
}

function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
