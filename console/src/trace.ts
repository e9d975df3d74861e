// Names the trace of a search before it is sent, so that the page can link to it.

export interface Trace {
  readonly id: string;
  /** The value of the `traceparent` header, sampled. */
  readonly header: string;
}

/** Returns a new trace. */
export function newTrace(): Trace {
  const id = randomHex(16);
  return { id, header: `00-${id}-${randomHex(8)}-01` };
}

function randomHex(byteCount: number): string {
  const bytes = crypto.getRandomValues(new Uint8Array(byteCount));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
