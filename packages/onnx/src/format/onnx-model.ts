/**
 * Reads ONNX models: graphs, nodes with attributes of every kind, functions, and initializers as views of the file.
 *
 * The bytes are untrusted, and their number limits the memory that a model takes. Elements are converted when they are
 * read; elements in another file need a loader. Nothing is inferred here: the importer finds shapes and meaning.
 *
 * @module
 * @see https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; onnx/onnx docs/ExternalData.md
 */

import { elementsAt } from '@ropewalk/formats/internal';
import { type Dtype, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { checkBytes, decodeUtf8, nameForMessage, readOptions } from 'ropewalk/internal';
import { DTYPE_OF } from './onnx.js';
import { decodeFile, dimensionsOf, elementsOf, MAX_RANK, type Message } from './onnx-messages.js';

/** A protobuf message holds 2 GiB - 1 at most. Larger models keep their tensors in other files. */
export const MAX_MODEL_BYTES = 2 ** 31 - 1;
/** TensorProto.DataType of bool, which is read as u8. */
const BOOL = 9;
/** TensorProto.DataLocation of elements in another file. */
const EXTERNAL = 1;

/** The place of elements that are in another file. */
export interface ExternalLocation {
  /** The path as the file states it, relative to the model's folder and unchecked. */
  readonly location: string;
  /** The offset from the start of that file, in bytes. */
  readonly offset: number;
  /** The number of bytes. Default: as many as the shape needs. */
  readonly length: number;
}

/** Loads the bytes of a tensor in another file: exactly `length` of them. */
export type ExternalLoader = (where: ExternalLocation) => Uint8Array;

/** A tensor of a model: its header, and its elements on demand. */
export interface OnnxTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** The dtype that reads the elements: u8 for bool, undefined for strings and 4-bit integers. */
  readonly dtype: Dtype | undefined;
  /** TensorProto.DataType, as the file states it. */
  readonly dataType: number;
  /** Set if the elements are in another file. */
  readonly external: ExternalLocation | undefined;
  /**
   * Reads the elements as a dense tensor, which is a view of the file if the alignment allows it.
   *
   * @throws {RopewalkError} FORMAT when there are more or fewer elements than the shape has, or they are in another
   *   file and there is no loader; UNSUPPORTED for a type without a dtype here
   */
  read(): Tensor;
}

/** The value of an attribute. Integers beyond 2^53 are rounded; an end that means "to the end" stays far away. */
export type AttributeValue =
  | { readonly kind: 'float' | 'int'; readonly value: number }
  | { readonly kind: 'floats' | 'ints'; readonly value: readonly number[] }
  | { readonly kind: 'string'; readonly value: string }
  | { readonly kind: 'strings'; readonly value: readonly string[] }
  | { readonly kind: 'tensor'; readonly value: OnnxTensor }
  | { readonly kind: 'tensors'; readonly value: readonly OnnxTensor[] }
  | { readonly kind: 'graph'; readonly value: OnnxGraph }
  | { readonly kind: 'graphs'; readonly value: readonly OnnxGraph[] }
  /** Stands for the attribute of this name of the node that calls the function. */
  | { readonly kind: 'reference'; readonly value: string }
  /** Sparse tensors and types are not read. */
  | { readonly kind: 'other'; readonly value: undefined };

/** A node of a model. */
export interface OnnxModelNode {
  /** Empty for a node without a name. */
  readonly name: string;
  readonly opType: string;
  /** '' is ai.onnx. The name 'ai.onnx' is read as ''. */
  readonly domain: string;
  /** The names of values. '' leaves an optional input out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: ReadonlyMap<string, AttributeValue>;
}

/** The declaration of a value. */
export interface OnnxValueType {
  readonly name: string;
  /** TensorProto.DataType; 0 if the type is not declared or the value is not a tensor. */
  readonly dataType: number;
  /** The same as {@link OnnxTensor.dtype}. */
  readonly dtype: Dtype | undefined;
  /**
   * Each dimension is a number, a name (`batch_size`) or undefined. The shape is undefined if the rank is not declared.
   */
  readonly shape: readonly (number | string | undefined)[] | undefined;
}

/** A graph: the model's main graph, or one inside a node (If, Loop, Scan). */
export interface OnnxGraph {
  readonly name: string;
  /** The description by its author, or ''. */
  readonly doc: string;
  readonly nodes: readonly OnnxModelNode[];
  readonly inputs: readonly OnnxValueType[];
  readonly outputs: readonly OnnxValueType[];
  /** The declared types of values between nodes. */
  readonly valueTypes: ReadonlyMap<string, OnnxValueType>;
  readonly initializers: ReadonlyMap<string, OnnxTensor>;
}

/** A function that the model defines. */
export interface OnnxFunction {
  readonly name: string;
  readonly domain: string;
  /** The body. Its inputs and outputs have names only, and it has no initializers. */
  readonly graph: OnnxGraph;
}

/** A model that was read from a file. */
export interface OnnxModelFile {
  /** The size of the file, without other files that hold its tensors. */
  readonly bytes: number;
  readonly irVersion: number;
  readonly producer: string;
  /** The version of each domain; '' is ai.onnx. */
  readonly opsets: ReadonlyMap<string, number>;
  /** The entries of `metadata_props`. */
  readonly metadata: ReadonlyMap<string, string>;
  readonly graph: OnnxGraph;
  readonly functions: readonly OnnxFunction[];
}

/** Options of {@link parseOnnxModel}. */
export interface ParseOnnxOptions {
  /** Loads tensors in other files. Without a loader they have a name and cannot be read. */
  readonly loadExternal?: ExternalLoader;
}

/**
 * Reads a `ModelProto`.
 *
 * @param bytes - the whole file; it is kept, because tensors are views of it
 * @param where - the name of the file in messages
 * @param options - the loader for tensors in other files
 * @throws {RopewalkError} FORMAT when it is malformed, has no graph, or two initializers of a graph have the same name
 */
export function parseOnnxModel(bytes: Uint8Array, where = 'onnx', options: ParseOnnxOptions = {}): OnnxModelFile {
  checkBytes(bytes, where);
  const { loadExternal } = readOptions(options, `${where}: options`, { loadExternal: true });
  if (loadExternal !== undefined && typeof loadExternal !== 'function')
    refuse('RANGE', `${where}: loadExternal`, 'a function', loadExternal);
  if (bytes.length > MAX_MODEL_BYTES) refuse('FORMAT', where, `at most ${MAX_MODEL_BYTES} bytes`, bytes.length);
  if (bytes.length === 0) fail('FORMAT', where, 'the file is empty');
  const model = decodeFile('ModelProto', bytes, where);
  if (!Object.hasOwn(model, 'graph')) fail('FORMAT', where, 'it has no graph. Is it an .onnx file?');
  const reader: Reader = { where, loadExternal };
  const opsets = new Map<string, number>();
  for (const entry of list(model, 'opsetImport')) opsets.set(domainOf(entry), number(entry.version));
  return {
    bytes: bytes.length,
    irVersion: number(model.irVersion),
    producer: text(model, 'producerName'),
    opsets,
    metadata: new Map(list(model, 'metadataProps').map((entry) => [text(entry, 'key'), text(entry, 'value')])),
    graph: readGraph(model.graph as Message, reader),
    functions: list(model, 'functions').map((message) => ({
      name: text(message, 'name'),
      domain: domainOf(message),
      graph: {
        ...readGraph({ ...message, input: [], output: [] }, reader),
        inputs: names(message, 'input').map(untyped),
        outputs: names(message, 'output').map(untyped),
      },
    })),
  };
}

interface Reader {
  readonly where: string;
  readonly loadExternal: ExternalLoader | undefined;
}

function readGraph(message: Message, reader: Reader): OnnxGraph {
  const initializers = new Map<string, OnnxTensor>();
  for (const entry of list(message, 'initializer')) {
    const tensor = readTensor(entry, reader);
    if (initializers.has(tensor.name))
      fail('FORMAT', `${reader.where}: graph`, `two initializers are named ${nameForMessage(tensor.name)}`);
    initializers.set(tensor.name, tensor);
  }
  const values = (field: string): OnnxValueType[] => list(message, field).map((value) => readValue(value, reader));
  return {
    name: text(message, 'name'),
    doc: text(message, 'docString'),
    nodes: list(message, 'node').map((node) => readNode(node, reader)),
    inputs: values('input'),
    outputs: values('output'),
    valueTypes: new Map(values('valueInfo').map((value) => [value.name, value])),
    initializers,
  };
}

function readNode(message: Message, reader: Reader): OnnxModelNode {
  const attributes = new Map<string, AttributeValue>();
  for (const entry of list(message, 'attribute')) attributes.set(text(entry, 'name'), readAttribute(entry, reader));
  return {
    name: text(message, 'name'),
    opType: text(message, 'opType'),
    domain: domainOf(message),
    inputs: names(message, 'input'),
    outputs: names(message, 'output'),
    attributes,
  };
}

/** The field with the value for each AttributeProto.type, from type 1 on. */
const ATTRIBUTE_FIELDS = ['f', 'i', 's', 't', 'g', 'floats', 'ints', 'strings', 'tensors', 'graphs'] as const;

function readAttribute(message: Message, reader: Reader): AttributeValue {
  if (text(message, 'refAttrName') !== '') return { kind: 'reference', value: text(message, 'refAttrName') };
  const type = number(message.type);
  const here = (field: string): boolean => Object.hasOwn(message, field);
  // IR versions before 2 write no type, so the field that is present tells it.
  const field =
    type === 0
      ? ATTRIBUTE_FIELDS.find((name) => here(name) && (message[name] as { length?: number }).length !== 0)
      : ATTRIBUTE_FIELDS[type - 1];
  const utf8 = (value: unknown): string =>
    decodeUtf8(bytesOf(value), `${reader.where}: attribute ${nameForMessage(text(message, 'name'))}`);
  switch (field) {
    case 'f':
      return { kind: 'float', value: number(message.f) };
    case 'i':
      return { kind: 'int', value: number(message.i) };
    case 's':
      return { kind: 'string', value: utf8(message.s) };
    case 't':
      return here('t') ? { kind: 'tensor', value: readTensor(message.t as Message, reader) } : OTHER;
    case 'g':
      return here('g') ? { kind: 'graph', value: readGraph(message.g as Message, reader) } : OTHER;
    case 'floats':
    case 'ints':
      return { kind: field, value: (message[field] as readonly unknown[]).map(number) };
    case 'strings':
      return { kind: field, value: (message.strings as readonly unknown[]).map(utf8) };
    case 'tensors':
      return { kind: field, value: list(message, field).map((tensor) => readTensor(tensor, reader)) };
    case 'graphs':
      return { kind: field, value: list(message, field).map((graph) => readGraph(graph, reader)) };
    default:
      return OTHER;
  }
}

const OTHER: AttributeValue = /* @__PURE__ */ Object.freeze({ kind: 'other', value: undefined });

function readTensor(message: Message, { where: file, loadExternal }: Reader): OnnxTensor {
  const name = text(message, 'name');
  const where = `${file}: tensor ${nameForMessage(name)}`;
  const { shape, count } = dimensionsOf(message, where);
  const dataType = number(message.dataType);
  const dtype = dtypeOf(dataType);
  const external = number(message.dataLocation) === EXTERNAL ? readLocation(message, dtype, count, where) : undefined;
  return {
    name,
    shape,
    dtype,
    dataType,
    external,
    read() {
      if (dtype === undefined)
        refuse('UNSUPPORTED', `${where}: data_type`, `one of ${[...DTYPE_OF.keys(), BOOL].join(', ')}`, dataType);
      if (!external) return tensorFrom(elementsOf(message, dtype, count, where), { dtype, shape });
      const wanted = count * sizeBytes(dtype);
      const elsewhere = nameForMessage(external.location);
      if (external.length !== wanted) {
        const expected = `${wanted} bytes for ${count} elements of ${dtype}`;
        refuse('FORMAT', `${where}: external_data`, expected, external.length);
      }
      if (!loadExternal)
        fail('FORMAT', where, `its elements lie in the file ${elsewhere}. Give loadExternal, which reads it.`);
      const bytes = loadExternal(external);
      if (bytes.length !== wanted) refuse('FORMAT', `${where}: ${elsewhere}`, `${wanted} bytes`, bytes.length);
      return tensorFrom(elementsAt(bytes, 0, dtype, count), { dtype, shape });
    },
  };
}

function readLocation(message: Message, dtype: Dtype | undefined, count: number, where: string): ExternalLocation {
  const entries = new Map(list(message, 'externalData').map((entry) => [text(entry, 'key'), text(entry, 'value')]));
  const integer = (key: string, missing: number): number => {
    const given = entries.get(key);
    if (given === undefined) return missing;
    const value = Number(given);
    if (!/^\d+$/.test(given) || !Number.isSafeInteger(value))
      refuse('FORMAT', `${where}: external_data.${key}`, 'an integer >= 0', given);
    return value;
  };
  const location = entries.get('location') ?? '';
  if (location === '') fail('FORMAT', `${where}: external_data.location`, 'the name of the other file is missing');
  return { location, offset: integer('offset', 0), length: integer('length', dtype ? count * sizeBytes(dtype) : 0) };
}

function readValue(message: Message, reader: Reader): OnnxValueType {
  const type = own(own(message, 'type'), 'tensorType');
  const name = text(message, 'name');
  if (!type) return untyped(name);
  const dataType = number(type.elemType);
  const described = own(type, 'shape');
  const dims = described && list(described, 'dim');
  if (dims && dims.length > MAX_RANK)
    refuse('FORMAT', `${reader.where}: value ${nameForMessage(name)}`, `at most ${MAX_RANK} dimensions`, dims.length);
  return { name, dataType, dtype: dtypeOf(dataType), shape: dims?.map(readDimension) };
}

function readDimension(dim: Message): number | string | undefined {
  if (Object.hasOwn(dim, 'dimValue')) {
    const value = number(dim.dimValue);
    // Old exporters write -1 or 0 for an unknown size.
    return Number.isSafeInteger(value) && value > 0 ? value : undefined;
  }
  return text(dim, 'dimParam') || undefined;
}

function dtypeOf(dataType: number): Dtype | undefined {
  return dataType === BOOL ? 'u8' : DTYPE_OF.get(dataType);
}

function untyped(name: string): OnnxValueType {
  return { name, dataType: 0, dtype: undefined, shape: undefined };
}

function domainOf(message: Message): string {
  const domain = text(message, 'domain');
  return domain === 'ai.onnx' ? '' : domain;
}

function own(message: Message | undefined, field: string): Message | undefined {
  return message && Object.hasOwn(message, field) ? (message[field] as Message) : undefined;
}

function list(message: Message, field: string): readonly Message[] {
  return (message[field] as readonly Message[] | undefined) ?? [];
}

function names(message: Message, field: string): readonly string[] {
  return (message[field] as readonly string[] | undefined) ?? [];
}

function text(message: Message, field: string): string {
  return (message[field] as string | undefined) ?? '';
}

/** Converts a number or a bigint, which is rounded beyond 2^53. */
function number(value: unknown): number {
  return value === undefined || value === null ? 0 : Number(value);
}

function bytesOf(value: unknown): Uint8Array {
  return value instanceof Uint8Array ? value : new Uint8Array(0);
}
