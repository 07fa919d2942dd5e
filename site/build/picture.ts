/** Draws the dials of a wrong kernel beside those of the right one as a PNG, which link previews need. @module */
import { crc32, deflateSync } from 'node:zlib';

/** The two values of each pair of a head, by token. */
export interface Dial {
  readonly right: readonly [number, number];
  readonly wrong: readonly [number, number];
  /** Whether the wrong kernel's are beyond the tolerance. */
  readonly off: boolean;
}

type Color = readonly [number, number, number];
const BACKGROUND: Color = [16, 22, 30];
const FACE: Color = [34, 43, 54];
/** The colors that are drawn, each with the one behind it. A pixel has 16 shades between the two. */
const LAYERS: readonly (readonly [Color, Color])[] = [
  [FACE, BACKGROUND],
  [[79, 209, 197], FACE],
  [[255, 140, 112], FACE],
  [[84, 98, 114], FACE],
];
const [DISC, TEAL, RED, GHOST] = [0, 1, 2, 3];

/** The size of the picture. Previews are about this wide. */
export const WIDTH = 1000;
export const HEIGHT = 525;
const MARGIN = 20;

/** A picture whose pixels are a layer and a shade. */
class Canvas {
  readonly #pixels = new Uint8Array(WIDTH * HEIGHT);

  /** Fills what is nearer than half a pixel to a shape, with its edge smoothed. */
  #fill(layer: number, cx: number, cy: number, reach: number, distance: (x: number, y: number) => number): void {
    for (let y = Math.floor(cy - reach); y <= cy + reach; y++)
      for (let x = Math.floor(cx - reach); x <= cx + reach; x++) {
        const shade = Math.round(15 * Math.min(1, Math.max(0, 0.5 - distance(x - cx, y - cy))));
        if (shade > 0) this.#pixels[y * WIDTH + x] = 16 * layer + shade;
      }
  }

  disc(layer: number, cx: number, cy: number, r: number): void {
    this.#fill(layer, cx, cy, r + 1, (x, y) => Math.hypot(x, y) - r);
  }

  /** Draws an arrow from the middle of a dial. */
  arrow(layer: number, cx: number, cy: number, [dx, dy]: readonly [number, number]): void {
    const square = dx * dx + dy * dy || 1;
    this.#fill(layer, cx, cy, Math.sqrt(square) + 3, (x, y) => {
      const t = Math.min(1, Math.max(0, (x * dx + y * dy) / square));
      return Math.hypot(x - t * dx, y - t * dy) - 2;
    });
    this.disc(layer, cx + dx, cy + dy, 4.5);
  }

  /** Encodes the picture with its palette. */
  png(): Uint8Array {
    const header = Buffer.alloc(13);
    header.writeUInt32BE(WIDTH, 0);
    header.writeUInt32BE(HEIGHT, 4);
    header.set([8, 3], 8); // 8 bits that are indexes of a palette
    const palette = LAYERS.flatMap(([front, back]) =>
      Array.from({ length: 16 }, (_, shade) => back.map((from, i) => from + ((front[i]! - from) * shade) / 15)),
    ).flat();
    const rows = Buffer.alloc((WIDTH + 1) * HEIGHT); // each row begins with 0: it has no filter
    for (let y = 0; y < HEIGHT; y++) rows.set(this.#pixels.subarray(y * WIDTH, (y + 1) * WIDTH), y * (WIDTH + 1) + 1);
    const chunk = (name: string, data: Uint8Array): Buffer => {
      const body = Buffer.concat([Buffer.from(name), data]);
      const ends = Buffer.alloc(8);
      ends.writeUInt32BE(data.length, 0);
      ends.writeUInt32BE(crc32(body), 4);
      return Buffer.concat([ends.subarray(0, 4), body, ends.subarray(4)]);
    };
    return Buffer.concat([
      Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
      chunk('IHDR', header),
      chunk('PLTE', Uint8Array.from(palette, Math.round)),
      chunk('IDAT', deflateSync(rows)),
      chunk('IEND', new Uint8Array()),
    ]);
  }
}

/**
 * Draws dials, token by pair: the right kernel's on the left, the wrong one's on the right.
 *
 * @param dials - one row for each token, all of the same length
 * @returns a PNG
 */
export function pictureOf(dials: readonly (readonly Dial[])[]): Uint8Array {
  const canvas = new Canvas();
  const columns = dials[0]!.length;
  const panel = WIDTH / 2 - MARGIN;
  const cell = Math.min(panel / columns, (HEIGHT - 2 * MARGIN) / dials.length);
  const r = 0.42 * cell;
  const left = MARGIN / 2 + (panel - columns * cell) / 2;
  const top = (HEIGHT - dials.length * cell) / 2;
  for (const [row, line] of dials.entries())
    for (const [column, { right, wrong, off }] of line.entries()) {
      const cy = top + (row + 0.5) * cell;
      const cx = left + (column + 0.5) * cell;
      const other = cx + WIDTH / 2;
      // The right arrow ends near the edge of the face, and so does a wrong one that is longer.
      const to = ([a, b]: readonly [number, number]): readonly [number, number] => {
        const scale = (0.75 * r) / Math.max(Math.hypot(...right), Math.hypot(a, b) / 1.2);
        return Number.isFinite(a * scale) && Number.isFinite(b * scale) ? [a * scale, -b * scale] : [0, 0];
      };
      for (const x of [cx, other]) canvas.disc(DISC, x, cy, r);
      canvas.arrow(TEAL, cx, cy, to(right));
      if (off) canvas.arrow(GHOST, other, cy, to(right));
      canvas.arrow(off ? RED : TEAL, other, cy, to(wrong));
    }
  return canvas.png();
}
