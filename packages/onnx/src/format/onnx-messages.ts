/**
 * Decodes and encodes the protobuf messages of ONNX. It is the only file that uses the protobuf library.
 *
 * The library reads a descriptor at run time and generates no code, so this works under a content security policy
 * without `unsafe-eval`. Field names, numbers and types are those of onnx.proto. Fields that are not used here are
 * missing, and skipped in files.
 *
 * @module
 * @see https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
 */
import type { DescMessage, MessageInitShape } from '@bufbuild/protobuf';
import { create, createFileRegistry, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FileDescriptorProtoSchema,
} from '@bufbuild/protobuf/wkt';
import { countClaimed, elementsAt } from '@ropewalk/formats/internal';
import { type Dtype, type HostArray, sizeBytes } from 'ropewalk';
import { fail, newArray, refuse } from 'ropewalk/backend';

/** Tensors with more dimensions are refused. ONNX has no limit; numpy's is 64. */
export const MAX_RANK = 64;

/** A field: its number, its type (a scalar type or the name of a message), and whether it may occur several times. */
type Field = readonly [id: number, type: string, rule?: 'repeated' | 'packed'];

const MESSAGES: Readonly<Record<string, Readonly<Record<string, Field>>>> = {
  TensorProto: {
    dims: [1, 'INT64', 'repeated'],
    data_type: [2, 'INT32'],
    float_data: [4, 'FLOAT', 'packed'],
    int32_data: [5, 'INT32', 'packed'],
    string_data: [6, 'BYTES', 'repeated'],
    int64_data: [7, 'INT64', 'packed'],
    name: [8, 'STRING'],
    raw_data: [9, 'BYTES'],
    double_data: [10, 'DOUBLE', 'packed'],
    uint64_data: [11, 'UINT64', 'packed'],
    external_data: [13, 'StringStringEntryProto', 'repeated'],
    data_location: [14, 'INT32'],
  },
  StringStringEntryProto: { key: [1, 'STRING'], value: [2, 'STRING'] },
  AttributeProto: {
    name: [1, 'STRING'],
    f: [2, 'FLOAT'],
    i: [3, 'INT64'],
    s: [4, 'BYTES'],
    t: [5, 'TensorProto'],
    g: [6, 'GraphProto'],
    floats: [7, 'FLOAT', 'repeated'],
    ints: [8, 'INT64', 'repeated'],
    strings: [9, 'BYTES', 'repeated'],
    tensors: [10, 'TensorProto', 'repeated'],
    graphs: [11, 'GraphProto', 'repeated'],
    type: [20, 'INT32'],
    ref_attr_name: [21, 'STRING'],
  },
  NodeProto: {
    input: [1, 'STRING', 'repeated'],
    output: [2, 'STRING', 'repeated'],
    name: [3, 'STRING'],
    op_type: [4, 'STRING'],
    attribute: [5, 'AttributeProto', 'repeated'],
    domain: [7, 'STRING'],
  },
  Dimension: { dim_value: [1, 'INT64'], dim_param: [2, 'STRING'] },
  TensorShapeProto: { dim: [1, 'Dimension', 'repeated'] },
  TensorType: { elem_type: [1, 'INT32'], shape: [2, 'TensorShapeProto'] },
  TypeProto: { tensor_type: [1, 'TensorType'] },
  ValueInfoProto: { name: [1, 'STRING'], type: [2, 'TypeProto'] },
  GraphProto: {
    node: [1, 'NodeProto', 'repeated'],
    name: [2, 'STRING'],
    initializer: [5, 'TensorProto', 'repeated'],
    doc_string: [10, 'STRING'],
    input: [11, 'ValueInfoProto', 'repeated'],
    output: [12, 'ValueInfoProto', 'repeated'],
    value_info: [13, 'ValueInfoProto', 'repeated'],
  },
  FunctionProto: {
    name: [1, 'STRING'],
    input: [4, 'STRING', 'repeated'],
    output: [5, 'STRING', 'repeated'],
    attribute: [6, 'STRING', 'repeated'],
    node: [7, 'NodeProto', 'repeated'],
    opset_import: [9, 'OperatorSetIdProto', 'repeated'],
    domain: [10, 'STRING'],
    value_info: [12, 'ValueInfoProto', 'repeated'],
  },
  OperatorSetIdProto: { domain: [1, 'STRING'], version: [2, 'INT64'] },
  ModelProto: {
    ir_version: [1, 'INT64'],
    producer_name: [2, 'STRING'],
    graph: [7, 'GraphProto'],
    opset_import: [8, 'OperatorSetIdProto', 'repeated'],
    metadata_props: [14, 'StringStringEntryProto', 'repeated'],
    functions: [25, 'FunctionProto', 'repeated'],
  },
};

export type FileKind = 'TensorProto' | 'ModelProto';

/**
 * A message by its fields, in camelCase. An absent field reads as its zero and is not an own property. 64-bit integers
 * are bigints; a message that is written may have numbers instead.
 */
export type Message = Readonly<Record<string, unknown>>;

let registry: ReturnType<typeof createFileRegistry> | undefined;

/** The registry is built at the first use, so that loading this file does nothing. */
function messageOf(kind: FileKind): DescMessage {
  registry ??= createFileRegistry(
    create(FileDescriptorProtoSchema, {
      name: 'onnx.proto',
      package: 'onnx',
      // An attribute whose value is 0 must be written, because ONNX's checker would take it for missing.
      syntax: 'proto2',
      messageType: Object.entries(MESSAGES).map(([message, fields]) => ({
        name: message,
        field: Object.entries(fields).map(([field, [number, type, rule]]) => ({
          name: field,
          number,
          label: rule ? FieldDescriptorProto_Label.REPEATED : FieldDescriptorProto_Label.OPTIONAL,
          ...(type in MESSAGES
            ? { type: FieldDescriptorProto_Type.MESSAGE, typeName: `.onnx.${type}` }
            : { type: FieldDescriptorProto_Type[type as 'INT64'] }),
          options: rule === 'packed' ? { packed: true } : undefined,
        })),
      })),
    }),
    () => undefined,
  );
  return registry.getMessage(`onnx.${kind}`)!;
}

/**
 * Decodes a file. Bytes in the result are views of the file; messages may nest 100 deep.
 *
 * @throws {RopewalkError} FORMAT when the bytes are not such a message, are cut, or nest too deep
 */
export function decodeFile(kind: FileKind, bytes: Uint8Array, where: string): Message {
  try {
    return fromBinary(messageOf(kind), bytes, { readUnknownFields: false }) as unknown as Message;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    return fail('FORMAT', where, `these bytes are not a ${kind}: ${why}. Is it an ONNX file, and whole?`);
  }
}

/** Encodes a file. The fields of a message are nested like the messages. */
export function encodeFile(kind: FileKind, message: Message): Uint8Array {
  const type = messageOf(kind);
  return toBinary(type, create(type, message as MessageInitShape<DescMessage>));
}

/**
 * Reads the dimensions of a TensorProto.
 *
 * @returns the shape, and the number of elements
 * @throws {RopewalkError} FORMAT when they are more than {@link MAX_RANK}, negative, or have 2^50 elements or more
 */
export function dimensionsOf(message: Message, where: string): { readonly shape: number[]; readonly count: number } {
  const shape = ((message.dims ?? []) as readonly unknown[]).map(Number);
  if (shape.length > MAX_RANK) refuse('FORMAT', `${where}: dims`, `at most ${MAX_RANK} dimensions`, shape.length);
  if (!shape.every((dim) => Number.isSafeInteger(dim) && dim >= 0))
    refuse('FORMAT', `${where}: dims`, 'integers >= 0', shape);
  const count = countClaimed(shape) ?? refuse('FORMAT', `${where}: dims`, 'fewer than 2^50 elements', shape);
  return { shape, count };
}

/**
 * Reads the elements of a TensorProto from raw_data, or from the typed field of its dtype.
 *
 * @throws {RopewalkError} FORMAT when there are not `count` elements
 */
export function elementsOf(message: Message, dtype: Dtype, count: number, where: string): HostArray {
  const raw = message.rawData as Uint8Array | undefined;
  if (raw !== undefined && raw.length > 0) {
    const bytes = count * sizeBytes(dtype);
    if (raw.length !== bytes)
      refuse('FORMAT', `${where}: raw_data`, `${bytes} bytes for ${count} elements of ${dtype}`, raw.length);
    return elementsAt(raw, 0, dtype, count);
  }
  const field = FIELD_OF[dtype] ?? 'int32Data';
  const values = (message[field] ?? []) as readonly (number | bigint)[];
  if (values.length !== count) refuse('FORMAT', `${where}: ${field}`, `${count} elements of ${dtype}`, values.length);
  const data = newArray(dtype, count);
  for (const [n, value] of values.entries()) {
    // int32_data holds the bits of f16 and bf16. Typed arrays wrap numbers that do not fit, like a cast in C.
    if (data instanceof BigInt64Array || data instanceof BigUint64Array) data[n] = BigInt(value);
    else data[n] = Number(value);
  }
  return data;
}

/** The field of a TensorProto for elements outside of raw_data. All other dtypes are in int32_data. */
const FIELD_OF: { readonly [D in Dtype]?: string } = {
  f64: 'doubleData',
  f32: 'floatData',
  i64: 'int64Data',
  u64: 'uint64Data',
  u32: 'uint64Data',
};
