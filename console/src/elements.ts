// Builds elements without markup: every text becomes a text node, so that no content of an item,
// no file name and no message of a server can become HTML.

export type Child = Node | string | null | undefined | false;

type Attributes = Readonly<Record<string, string | number | boolean | EventListener | undefined>>;

const SVG = "http://www.w3.org/2000/svg";

/** Returns an HTML element; an attribute that is true is empty, one that is false is left out. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  return filled(document.createElement(name), attributes, children);
}

/** Returns an SVG element. */
export function svgElement<K extends keyof SVGElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[K] {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Returns the element of the page with this id, which must be of the class. */
export function byId<T extends Element>(id: string, kind: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) {
    throw new Error(`the page has no ${kind.name} #${id}`);
  }
  return found;
}

function filled<T extends Element>(made: T, attributes: Attributes, children: readonly Child[]): T {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      made.addEventListener(name, value);
    } else if (value === true) {
      made.setAttribute(name, "");
    } else if (value !== undefined && value !== false) {
      made.setAttribute(name, String(value));
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}
