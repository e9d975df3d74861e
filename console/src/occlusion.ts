// Finds where the cross-encoder looks: how much each part of a picture, hidden, takes from a text.
//
// A word alone says little of where: the rest of the sentence holds the same places. So the map of
// chosen words is a contrast, z(loss of these words) - z(loss of the words around them).

export const GRID_SIDE = 7;

// Cells on a side of what is hidden: one cell alone often leaves enough to recognise a thing by.
const HIDDEN_SIDE = 3;
const MAX_PIXELS_ON_A_SIDE = 448;

/** Scores one text against several pictures: a logit each. */
export type Score = (text: string, pictures: readonly Uint8Array[], signal: AbortSignal) => Promise<number[]>;

/** The losses of one picture's cells, for any words. */
export class Occlusion {
  private readonly losses = new Map<string, Promise<readonly number[]>>();

  private constructor(
    private readonly pictures: readonly Uint8Array[],
    private readonly score: Score,
  ) {}

  /** Draws the picture with each part hidden; throws where the browser cannot read it. */
  static async of(picture: Uint8Array, score: Score): Promise<Occlusion> {
    return new Occlusion(await hiddenPictures(picture), score);
  }

  /** Returns the heat of each cell, row by row, at most 1; only what is over 0 speaks for the words. */
  async heat(chosen: string, rest: string, signal: AbortSignal): Promise<readonly number[]> {
    const own = standardised(await this.lossesOf(chosen, signal));
    const others = rest === "" ? own.map(() => 0) : standardised(await this.lossesOf(rest, signal));
    const contrast = own.map((value, at) => value - (others[at] ?? 0));
    const most = Math.max(...contrast, 1e-6);
    return contrast.map((value) => value / most);
  }

  private async lossesOf(text: string, signal: AbortSignal): Promise<readonly number[]> {
    const known = this.losses.get(text);
    if (known !== undefined) return known;
    const found = this.score(text, this.pictures, signal).then(([whole = 0, ...hidden]) =>
      hidden.map((logit) => whole - logit),
    );
    this.losses.set(text, found);
    // Nobody may wait for a call that was given up.
    const forget = () => this.losses.delete(text);
    signal.addEventListener("abort", forget, { once: true });
    found.then(() => signal.removeEventListener("abort", forget), forget);
    return found;
  }
}

/** Returns where the hottest cell is, in words. */
export function placeWords(heat: readonly number[]): string {
  const at = heat.indexOf(Math.max(...heat));
  const third = (position: number) => Math.floor((position * 3) / GRID_SIDE);
  const row = ["top", "middle", "bottom"][third(Math.floor(at / GRID_SIDE))];
  const column = ["left", "middle", "right"][third(at % GRID_SIDE)];
  if (row === "middle" && column === "middle") return "in the middle";
  if (column === "middle") return `at the ${row}`;
  return row === "middle" ? `on the ${column}` : `at the ${row} ${column}`;
}

/** Returns the picture itself, then with each cell's surroundings hidden, row by row. */
async function hiddenPictures(picture: Uint8Array): Promise<Uint8Array[]> {
  const bitmap = await createImageBitmap(new Blob([Uint8Array.from(picture)]));
  const scale = Math.min(1, MAX_PIXELS_ON_A_SIDE / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [Math.round(bitmap.width * scale), Math.round(bitmap.height * scale)];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (context === null) throw new Error("this browser has no canvas");
  const draw = () => context.drawImage(bitmap, 0, 0, width, height);
  draw();
  const cover = medianColour(context.getImageData(0, 0, width, height).data);
  const made = [await encoded(canvas)];
  const [cellWidth, cellHeight] = [width / GRID_SIDE, height / GRID_SIDE];
  const margin = (HIDDEN_SIDE - 1) / 2;
  for (let row = 0; row < GRID_SIDE; row += 1) {
    for (let column = 0; column < GRID_SIDE; column += 1) {
      draw();
      context.fillStyle = cover;
      context.fillRect(
        (column - margin) * cellWidth,
        (row - margin) * cellHeight,
        HIDDEN_SIDE * cellWidth,
        HIDDEN_SIDE * cellHeight,
      );
      made.push(await encoded(canvas));
    }
  }
  bitmap.close();
  return made;
}

async function encoded(canvas: HTMLCanvasElement): Promise<Uint8Array> {
  // Photographs would be large as PNG, and drawings get noise as JPEG.
  const type = canvas.width * canvas.height > 256 * 256 ? "image/jpeg" : "image/png";
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, type, 0.95));
  if (blob === null) throw new Error("this browser cannot encode a picture");
  return new Uint8Array(await blob.arrayBuffer());
}

/** Returns the colour that hides best: a drawing's background, a photograph's middle tone. */
function medianColour(pixels: Uint8ClampedArray): string {
  const medians = [0, 1, 2].map((channel) => {
    const counts = new Uint32Array(256);
    for (let at = channel; at < pixels.length; at += 4) counts[pixels[at] ?? 0]! += 1;
    let seen = 0;
    return counts.findIndex((count) => (seen += count) * 8 >= pixels.length);
  });
  return `rgb(${medians.join(" ")})`;
}

function standardised(values: readonly number[]): number[] {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
  return values.map((value) => (value - mean) / (Math.sqrt(variance) + 1e-6));
}
