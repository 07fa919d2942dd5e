import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { tensorFrom } from 'ropewalk';
import { damage, damaged, mustRefuseOrReturn } from '../../../../test/support/fuzz.js';
import { drawn } from '../../../../test/support/size.js';
import { floats } from '../../../../test/support/tensors.js';
import { writeOnnxModel } from '../../src/format/onnx.js';
import { parseOnnxModel } from '../../src/format/onnx-model.js';
import { Graph } from '../import/build.js';
import { FORMS } from '../import/forms.js';

/** A varint. */
const varint = (n: number): number[] => (n < 128 ? [n] : [(n & 127) | 128, ...varint(Math.floor(n / 128))]);
/** A field of length-delimited bytes. */
const bytes = (id: number, body: ArrayLike<number>): number[] => [
  ...varint((id << 3) | 2),
  ...varint(body.length),
  ...Array.from(body),
];
const ascii = (text: string): number[] => [...text].map((c) => c.charCodeAt(0));
const modelOf = (graph: readonly number[]): Uint8Array => Uint8Array.from([0x08, 10, ...bytes(7, graph)]);

describe('golden', () => {
  test('attributes of every kind, byte for byte as protobuf spells them', () => {
    const minusOne = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    const most = [255, 255, 255, 255, 255, 255, 255, 255, 127];
    const tensor = [0x08, 2, 0x10, 1, ...bytes(9, new Uint8Array(Float32Array.of(1, 2).buffer))];
    const attribute = (name: string, type: number, ...rest: number[]): number[] =>
      bytes(5, [...bytes(1, ascii(name)), ...rest, ...(type ? [0xa0, 1, type] : [])]);
    const node = [
      ...bytes(1, ascii('a')),
      ...bytes(1, []),
      ...bytes(2, ascii('c')),
      ...bytes(3, ascii('n')),
      ...bytes(4, ascii('Op')),
      ...bytes(7, ascii('com.microsoft')),
      ...attribute('f', 1, 0x15, 0, 0, 0, 0x3f),
      ...attribute('i', 2, 0x18, ...minusOne),
      ...attribute('most', 2, 0x18, ...most),
      ...attribute('zero', 2),
      ...attribute('s', 3, ...bytes(4, ascii('x,y'))),
      ...attribute('t', 4, ...bytes(5, tensor)),
      ...attribute('g', 5, ...bytes(6, [...bytes(1, [...bytes(4, ascii('Inner'))]), ...bytes(2, ascii('body'))])),
      ...attribute('floats', 6, 0x3d, 0, 0, 0, 0x3f, 0x3d, 0, 0, 0x80, 0x3f),
      ...attribute('ints', 7, 0x40, 1, ...bytes(8, [2, 3])),
      ...attribute('strings', 8, ...bytes(9, ascii('p')), ...bytes(9, [])),
      ...attribute('tensors', 9, ...bytes(10, tensor)),
      ...attribute('graphs', 10, ...bytes(11, bytes(2, ascii('b2')))),
      ...attribute('ref', 2, ...bytes(21, ascii('outer'))),
      ...attribute('sparse', 11),
      ...attribute('old', 0, 0x40, 7),
    ];
    const value = [
      ...bytes(1, ascii('a')),
      ...bytes(
        2,
        bytes(1, [
          0x08,
          1,
          ...bytes(2, [...bytes(1, bytes(2, ascii('batch'))), ...bytes(1, [0x08, 4]), ...bytes(1, [])]),
        ]),
      ),
    ];
    const model = parseOnnxModel(
      Uint8Array.from([
        0x08,
        10,
        ...bytes(2, ascii('torch')),
        ...bytes(7, [...bytes(1, node), ...bytes(11, value)]),
        ...bytes(8, [0x10, 23]),
        ...bytes(8, [...bytes(1, ascii('com.microsoft')), 0x10, 1]),
      ]),
    );
    assert.deepEqual(
      [model.irVersion, model.producer, [...model.opsets]],
      [
        10,
        'torch',
        [
          ['', 23],
          ['com.microsoft', 1],
        ],
      ],
    );
    const [only] = model.graph.nodes;
    assert.deepEqual(
      [only!.name, only!.opType, only!.domain, only!.inputs, only!.outputs],
      ['n', 'Op', 'com.microsoft', ['a', ''], ['c']],
    );
    const plain = [...only!.attributes].filter(
      ([, one]) => !['tensor', 'tensors', 'graph', 'graphs'].includes(one.kind),
    );
    assert.deepEqual(plain, [
      ['f', { kind: 'float', value: 0.5 }],
      ['i', { kind: 'int', value: -1 }],
      ['most', { kind: 'int', value: 2 ** 63 }],
      ['zero', { kind: 'int', value: 0 }],
      ['s', { kind: 'string', value: 'x,y' }],
      ['floats', { kind: 'floats', value: [0.5, 1] }],
      ['ints', { kind: 'ints', value: [1, 2, 3] }],
      ['strings', { kind: 'strings', value: ['p', ''] }],
      ['ref', { kind: 'reference', value: 'outer' }],
      ['sparse', { kind: 'other', value: undefined }],
      ['old', { kind: 'ints', value: [7] }],
    ]);
    const { t, g, tensors, graphs } = Object.fromEntries(only!.attributes) as unknown as Record<
      string,
      { value: never }
    >;
    assert.deepEqual([...floats((t!.value as { read(): never }).read())], [1, 2]);
    assert.deepEqual((tensors!.value as unknown[]).length, 1);
    assert.equal((g!.value as { nodes: { opType: string }[] }).nodes[0]!.opType, 'Inner');
    assert.equal((graphs!.value as { name: string }[])[0]!.name, 'b2');
    assert.deepEqual(model.graph.inputs, [{ name: 'a', dataType: 1, dtype: 'f32', shape: ['batch', 4, undefined] }]);
  });

  test('what our own writer writes is read, and initializers are views of the file', () => {
    const file = writeOnnxModel({
      name: 'g',
      opset: 23,
      irVersion: 11,
      producer: 'ropewalk',
      inputs: [{ name: 'a', dtype: 'f16', shape: [2] }],
      outputs: [{ name: 'c', dtype: 'f16', shape: [2] }],
      initializers: new Map([['b', tensorFrom(Uint8Array.of(1, 2, 3, 4), { shape: [2, 2] })]]),
      nodes: [{ opType: 'Add', inputs: ['a', 'b'], outputs: ['c'], attributes: { axis: { i: -1 } } }],
    });
    const { graph, opsets } = parseOnnxModel(file);
    assert.equal(opsets.get(''), 23);
    const b = graph.initializers.get('b')!;
    const data = b.read();
    assert.deepEqual([b.dtype, b.shape, [...floats(data)]], ['u8', [2, 2], [1, 2, 3, 4]]);
    assert.equal(data.storage.host!.buffer, file.buffer);
  });

  test('functions, and tensors in other files only where a loader is given', () => {
    const g = new Graph();
    const w = g.external('w', 'f32', [2], { location: 'w.bin', offset: '4', length: '8' });
    g.output(g.node('Turn', [w], {}, { domain: 'local' }), 'f32');
    const body = new Graph('f');
    body.node('Neg', ['x'], {}, { to: 'y' });
    const file = g.model({ functions: [body.function('Turn', 'local', ['x'], ['y'])] });
    const asked: unknown[] = [];
    const model = parseOnnxModel(file, 'm.onnx', {
      loadExternal: (where) => {
        asked.push(where);
        return new Uint8Array(Float32Array.of(3, 4).buffer);
      },
    });
    assert.deepEqual(asked, []);
    assert.deepEqual([...floats(model.graph.initializers.get('w')!.read())], [3, 4]);
    assert.deepEqual(asked, [{ location: 'w.bin', offset: 4, length: 8 }]);
    const [own] = model.functions;
    assert.deepEqual(
      [own!.name, own!.domain, own!.graph.inputs[0]!.name, own!.graph.nodes[0]!.opType],
      ['Turn', 'local', 'x', 'Neg'],
    );
    const plain = parseOnnxModel(file, 'm.onnx').graph.initializers.get('w')!;
    assert.throws(() => plain.read(), {
      code: 'FORMAT',
      message: /m\.onnx: tensor w: its elements lie in the file w\.bin\. Give loadExternal/,
    });
  });
});

describe('properties', () => {
  test('fuzz: damaged models are read or refused, and so are their tensors', () => {
    const branch = new Graph('b');
    branch.output(branch.node('Neg', ['x'], { alpha: { f: 0.5 }, names: 'text', list: [1, 2] }), 'f32');
    const g = new Graph();
    g.input('x', 'f32', ['batch', 3]);
    g.external('w', 'f16', [2, 3], { location: 'w.bin', offset: '0', length: '12' });
    g.constant(tensorFrom(BigInt64Array.of(1n, 2n)));
    g.output(
      g.node('If', ['x'], { then_branch: { graph: branch.graph }, value: { tensor: tensorFrom(Float32Array.of(1)) } }),
      'f32',
    );
    const file = g.model({ functions: [new Graph('f').function('F', 'local', ['a'], ['b'])] });
    const codes = ['FORMAT', 'UNSUPPORTED'];
    const readAll = (damagedFile: Uint8Array): void => {
      const model = parseOnnxModel(damagedFile, 'm', { loadExternal: () => new Uint8Array(12) });
      for (const tensor of model.graph.initializers.values()) mustRefuseOrReturn(() => tensor.read(), codes);
    };
    for (const whole of [file, FORMS[0]!.bytes]) {
      fc.assert(
        fc.property(damage, (steps) => mustRefuseOrReturn(() => readAll(damaged(whole, steps)), codes)),
        drawn(2000),
      );
    }
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (noise) => mustRefuseOrReturn(() => readAll(noise), codes)),
      drawn(2000),
    );
  });
});

describe('refusals', () => {
  const initializer = (...fields: number[]): number[] => bytes(5, [...bytes(8, ascii('w')), ...fields]);
  const huge = varint(2 ** 40);
  const cases: [string, Uint8Array, RegExp][] = [
    ['an empty file', new Uint8Array(0), /m\.onnx: the file is empty/],
    ['no graph', Uint8Array.of(0x08, 10), /m\.onnx: it has no graph\. Is it an \.onnx file\?/],
    ['other bytes', Uint8Array.from(ascii('{"a": 1}')), /m\.onnx: these bytes are not a ModelProto/],
    [
      'a file that is cut',
      modelOf(bytes(2, ascii('graph'))).slice(0, -2),
      /m\.onnx: these bytes are not a ModelProto: .* and whole\?/,
    ],
    [
      'absurd dimensions',
      modelOf(initializer(0x08, ...huge, 0x08, ...huge)),
      /tensor w: dims: expected fewer than 2\^50 elements/,
    ],
    [
      '65 dimensions',
      modelOf(initializer(...bytes(1, new Array(65).fill(1)))),
      /tensor w: dims: expected at most 64 dimensions, got 65/,
    ],
    ['two initializers of one name', modelOf([...initializer(), ...initializer()]), /two initializers are named w/],
    [
      'elements in a file without a name',
      modelOf(initializer(0x70, 1)),
      /tensor w: external_data\.location: the name of the other file is missing/,
    ],
    [
      'an offset that is none',
      modelOf(
        initializer(
          0x70,
          1,
          ...bytes(13, [...bytes(1, ascii('offset')), ...bytes(2, ascii('-4'))]),
          ...bytes(13, [...bytes(1, ascii('location')), ...bytes(2, ascii('w'))]),
        ),
      ),
      /external_data\.offset: expected an integer >= 0, got "-4"/,
    ],
    [
      'an attribute that is no text',
      modelOf(bytes(1, bytes(5, [...bytes(1, ascii('s')), ...bytes(4, [255, 254]), 0xa0, 1, 3]))),
      /attribute s: it is not valid UTF-8/,
    ],
  ];
  for (const [name, file, message] of cases) {
    test(
      name,
      () =>
        void assert.throws(() => parseOnnxModel(file, 'm.onnx'), { name: 'RopewalkError', code: 'FORMAT', message }),
    );
  }
  test('elements that are too few, or of a type that is none of ours', () => {
    const read = (fields: number[]) =>
      parseOnnxModel(modelOf(initializer(...fields)), 'm.onnx')
        .graph.initializers.get('w')!
        .read();
    assert.throws(() => read([0x08, 2, 0x10, 1, ...bytes(9, [0, 0, 0, 0])]), {
      code: 'FORMAT',
      message: /tensor w: raw_data: expected 8 bytes for 2 elements of f32, got 4/,
    });
    assert.throws(() => read([0x08, 2, 0x10, 18]), {
      code: 'UNSUPPORTED',
      message: /tensor w: data_type: expected one of 1, 2, .*, got 18/,
    });
  });
  test('graphs in graphs in graphs: bounded', () => {
    let graph: number[] = bytes(2, ascii('g'));
    for (let depth = 0; depth < 200; depth++) graph = bytes(1, bytes(5, [...bytes(6, graph), 0xa0, 1, 5]));
    assert.throws(() => parseOnnxModel(modelOf(graph), 'm.onnx'), {
      code: 'FORMAT',
      message: /these bytes are not a ModelProto/,
    });
  });
});
