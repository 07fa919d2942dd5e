/**
 * Counts bank conflicts of the unified buffer: 16 groups of 3 banks of 4 KB, with neighbouring datablocks in
 * neighbouring groups.
 *
 * AscendC's guide on bank conflicts gives the layout by example: 0x10000 is in bank 16, 0x10020 in bank 17, 0x20020 in
 * bank 33. So the group is the number of the datablock modulo 16, and the bank is that plus 16 for every 64 KB. @module
 */
import { BLOCK, CONFLICT_CYCLES } from './costs.js';

const groupOf = (at: number): number => Math.floor(at / BLOCK) % 16;
/** Returns which of the three banks of its group holds an address. */
const layerOf = (at: number): number => Math.floor(at / 65536);

/** Returns the groups of a run of bytes, as a set of bits. */
function groupsOf(at: number, bytes: number): number {
  const blocks = Math.min(16, Math.ceil(bytes / BLOCK));
  const first = groupOf(at);
  const bits = (1 << blocks) - 1;
  return ((bits << first) | (bits >>> (16 - first))) & 0xffff;
}

/** Returns the bank of an address: 0 to 47. */
export function bankOf(at: number): number {
  return groupOf(at) + 16 * layerOf(at);
}

/** One operand of a vector instruction: its address, and the bytes from repeat to repeat. */
interface Operand {
  readonly at: number;
  readonly step: number;
}

/** Counts repeats of `bytes` whose operands meet: two reads in one group, or a read and the write in one bank. */
export function conflictsOf(dst: Operand, sources: readonly Operand[], repeats: number, bytes: number) {
  let readRead = 0;
  let readWrite = 0;
  const [a, b] = sources;
  for (let r = 0; r < repeats; r++) {
    const at = dst.at + r * dst.step;
    const atA = a ? a.at + r * a.step : 0;
    const atB = b ? b.at + r * b.step : 0;
    const groups = groupsOf(at, bytes);
    const groupsA = a ? groupsOf(atA, bytes) : 0;
    const groupsB = b ? groupsOf(atB, bytes) : 0;
    if (atA !== atB && (groupsA & groupsB) !== 0) readRead++;
    const meetsA = (groups & groupsA) !== 0 && layerOf(atA) === layerOf(at);
    if (meetsA || ((groups & groupsB) !== 0 && layerOf(atB) === layerOf(at))) readWrite++;
  }
  return { readRead, readWrite, cycles: readRead * CONFLICT_CYCLES.readRead + readWrite * CONFLICT_CYCLES.readWrite };
}
