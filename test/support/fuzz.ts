/** Damages files for fuzz tests. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { RopewalkError } from 'ropewalk';

/** Generates damage: flipped, removed and inserted bytes, and length fields with extreme values. */
export const damage = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant('flip' as const), at: fc.nat(), value: fc.integer({ min: 0, max: 255 }) }),
    fc.record({ kind: fc.constant('cut' as const), at: fc.nat() }),
    fc.record({ kind: fc.constant('insert' as const), at: fc.nat(), value: fc.integer({ min: 0, max: 255 }) }),
    fc.record({
      kind: fc.constant('length' as const),
      at: fc.nat(),
      value: fc.constantFrom(0n, 1n, 2n ** 31n, 2n ** 32n - 1n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n),
    }),
  ),
  { minLength: 1, maxLength: 4 },
);

/** Applies damage to a copy of a file. */
export function damaged(
  bytes: Uint8Array,
  steps: readonly { kind: string; at: number; value?: number | bigint }[],
): Uint8Array {
  let file = Uint8Array.from(bytes);
  for (const { kind, at, value } of steps) {
    const where = file.length === 0 ? 0 : at % file.length;
    if (kind === 'cut') file = file.slice(0, where);
    else if (kind === 'insert')
      file = Uint8Array.from([...file.subarray(0, where), Number(value), ...file.subarray(where)]);
    else if (kind === 'flip' && file.length > 0) file[where] = Number(value);
    else if (kind === 'length' && file.length >= 8)
      new DataView(file.buffer).setBigUint64(Math.min(where, file.length - 8), value as bigint, true);
  }
  return file;
}

/** Runs a reader on any input. It must return or throw a RopewalkError with one of the codes. */
export function mustRefuseOrReturn(read: () => unknown, codes: readonly string[] = ['FORMAT']): void {
  try {
    read();
  } catch (error) {
    assert.ok(error instanceof RopewalkError, `not a RopewalkError: ${error}`);
    assert.ok(codes.includes(error.code), `${error.code}: ${error.message}`);
    assert.ok(error.message.length < 2000);
  }
}
