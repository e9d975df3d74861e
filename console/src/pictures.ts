// Shows pictures that arrive as bytes, and forgets them when the next answer comes.

import type { Content } from "../../clients/typescript/gen/tandem/v1/content_pb.js";
import { element } from "./elements.ts";

const MAGICS: readonly (readonly [string, readonly number[]])[] = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/webp", [0x52, 0x49, 0x46, 0x46]],
];

/** Holds the addresses of one answer's pictures. */
export class Pictures {
  private readonly addresses = new Map<string, string>();

  /** Returns an element that shows a content: the picture, or the text. */
  shown(itemId: string, content: Content | undefined): HTMLElement {
    switch (content?.data.case) {
      case "image":
        return this.ofBytes(itemId, content.data.value);
      case "text":
        return element("span", { class: "text-item" }, content.data.value);
      case "regions":
        return element("span", { class: "text-item faint" }, `${content.data.value.regionCount} regions of a detector`);
      default:
        return element("span", { class: "text-item faint" }, "deleted meanwhile");
    }
  }

  /** Returns an element that shows a picture. */
  ofBytes(name: string, bytes: Uint8Array): HTMLElement {
    return element("img", { src: this.address(name, bytes), alt: `Picture ${name}`, draggable: "false" });
  }

  /** Frees the memory of all pictures. */
  forget(): void {
    for (const address of this.addresses.values()) URL.revokeObjectURL(address);
    this.addresses.clear();
  }

  private address(itemId: string, bytes: Uint8Array): string {
    const known = this.addresses.get(itemId);
    if (known !== undefined) return known;
    const address = addressOf(bytes);
    this.addresses.set(itemId, address);
    return address;
  }
}

/** Returns an address of the picture; revoke it when it is no longer shown. */
export function addressOf(bytes: Uint8Array): string {
  const type = MAGICS.find(([, magic]) => magic.every((byte, at) => bytes[at] === byte))?.[0];
  // Never a type that could run a script, such as SVG, whatever the bytes are.
  return URL.createObjectURL(new Blob([Uint8Array.from(bytes)], { type: type ?? "image/png" }));
}
