import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { DTYPES, tensorFrom } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { bitsOf, countElements } from 'ropewalk/internal';
import { drawn } from '../../../test/support/size.js';
import { parseSafetensors, tensorFromSafetensors, writeSafetensors } from '../src/safetensors.js';

describe('writing', () => {
  test('a file, byte for byte', () => {
    const file = writeSafetensors(new Map([['w', tensorFrom(Float32Array.of(1), { shape: [1, 1] })]]), { by: 'me' });
    const header = '{"__metadata__":{"by":"me"},"w":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}';
    const padded = header.padEnd(Math.ceil(header.length / 8) * 8, ' ');
    assert.equal(new DataView(file.buffer).getBigUint64(0, true), BigInt(padded.length));
    assert.equal(new TextDecoder().decode(file.subarray(8, 8 + padded.length)), padded);
    assert.deepEqual([...file.subarray(8 + padded.length)], [0, 0, 0x80, 0x3f]);
  });

  test('what is written is read, for every dtype, shape and name', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(
          fc.oneof(
            fc.string({ unit: 'grapheme', maxLength: 8 }),
            fc.constantFrom('0', '10', '__proto__', 'constructor', 'a"b\\'),
          ),
          { maxLength: 4 },
        ),
        fc.constantFrom(...DTYPES),
        fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 3 }),
        fc.infiniteStream(fc.nat(255)),
        (names, dtype, shape, noise) => {
          const tensors = new Map(
            names
              .filter((name) => name !== '__metadata__')
              .map((name) => {
                const data = newArray(dtype, countElements(shape));
                const bytes = new Uint8Array(data.buffer);
                for (let i = 0; i < bytes.length; i++) bytes[i] = noise.next().value!;
                return [name, tensorFrom(data, { dtype, shape })];
              }),
          );
          const file = writeSafetensors(tensors, { note: 'ä' });
          const header = parseSafetensors(file);
          assert.equal(header.dataOffset % 8, 0);
          assert.deepEqual([...header.metadata], [['note', 'ä']]);
          assert.deepEqual([...header.tensors.keys()].toSorted(), [...tensors.keys()].toSorted());
          for (const [name, tensor] of tensors) {
            const back = tensorFromSafetensors(file, header, name);
            assert.deepEqual([back.dtype, back.shape], [dtype, shape]);
            assert.deepEqual(bitsOf(back.read() as never), bitsOf(tensor.read() as never));
          }
        },
      ),
      drawn(),
    );
  });

  test('refusal: the name of the metadata', () => {
    assert.throws(() => writeSafetensors(new Map([['__metadata__', tensorFrom(Float32Array.of(1))]])), {
      code: 'FORMAT',
      message: 'safetensors: name: __metadata__ is reserved. Give the tensor another name.',
    });
  });
});
