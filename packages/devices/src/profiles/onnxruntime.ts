/** ONNX Runtime's execution providers for NPUs, and those that reach them through a browser. @module */
import type { FloatDtype } from 'ropewalk';
import type { AttentionUse, DeviceProfile, DeviceRule, RopeUse } from '../profile.js';

/** One state of ONNX Runtime with all of its providers; the QNN provider has moved on in its own repository since. */
const AT = 'onnxruntime/onnxruntime-qnn@cee6c0d9 onnxruntime/core/providers';
const QNN = (commit: string, file: string): string =>
  `onnxruntime/onnxruntime-qnn@${commit} onnxruntime/core/providers/qnn/builder/${file}`;

const floats = <Use extends RopeUse | AttentionUse>(source: string): DeviceRule<Use> => ({
  words: 'data are f32 or f16',
  source,
  holds: ({ dtype }: { readonly dtype: FloatDtype }) => dtype === 'f32' || dtype === 'f16',
});
const fixed = (source: string): DeviceRule<RopeUse> => ({
  words: 'batch and sequence are fixed when the session opens',
  source,
  holds: ({ fixedShapes }) => fixedShapes,
});

/** What graphs of RoPE need and all of these have; the others are with each. */
const COMMON = [
  ...['Add', 'Cast', 'Concat', 'Div', 'Gather', 'Mul', 'ReduceMean', 'ReduceSum', 'Reshape', 'Slice', 'Split', 'Sqrt'],
  ...['Squeeze', 'Sub', 'Transpose', 'Unsqueeze'],
];

const QNN_ROPE = QNN('70bc4fba', 'opbuilder/rotary_embedding_op_builder.cc');
const QNN_SHAPES = `${AT}/qnn/builder/qnn_model.cc`;
const QNN_ATTENTION = QNN('02dc787c', 'opbuilder/attention_op_builder.cc');
const QNN_GQA = QNN('02dc787c', 'opbuilder/group_query_attention_op_builder.cc');
/** enable_htp_fp16_precision, in the documentation and in the code. */
const QNN_HALVES = 'onnxruntime.ai/docs/api/js QnnExecutionProviderOption: enableFp16Precision';
const QNN_PROVIDER = `${AT}/qnn/qnn_execution_provider.cc`;
const QNN_LIST = QNN('001cffc6', 'op_builder_factory.cc');

/** Qualcomm's NPU. */
export const ORT_QNN: DeviceProfile = {
  name: 'ort-qnn',
  title: "ONNX Runtime's QNN provider on Qualcomm's HTP",
  sources: [QNN_LIST, QNN_ROPE, QNN_ATTENTION, QNN_GQA, 'onnxruntime/onnxruntime-qnn#659', QNN_HALVES, QNN_PROVIDER],
  operators: [
    { op: 'rope', name: 'RotaryEmbedding', call: 'standard', rules: [floats(QNN_ROPE), fixed(QNN_SHAPES)] },
    { op: 'rope', name: 'primitives', call: 'primitives', rules: [floats(QNN_ROPE), fixed(QNN_SHAPES)] },
    {
      op: 'attention',
      name: 'Attention',
      rules: [
        floats(QNN_ATTENTION),
        {
          words: 'heads of q are a multiple of those of k and v',
          source: QNN_ATTENTION,
          holds: ({ heads, kvHeads }) => heads % kvHeads === 0,
        },
      ],
    },
    {
      op: 'attention',
      name: 'com.microsoft.GroupQueryAttention',
      rules: [
        {
          words: 'a window is no smaller than the cache',
          source: QNN_GQA,
          holds: ({ window, total }) => window === undefined || window >= total,
        },
        { words: 'scores are not capped', source: QNN_GQA, holds: ({ softcap }) => !softcap },
        { words: 'there are no sinks', source: QNN_GQA, holds: ({ sinks }) => !sinks },
      ],
    },
  ],
  lacks: [{ name: 'com.microsoft.RotaryEmbedding', source: QNN_ROPE }],
  onnx: {
    // Mod is there without fmod only, which angles f32-reduced need.
    names: [...COMMON, 'Cos', 'RMSNormalization', 'RotaryEmbedding', 'Round', 'ScatterND', 'Sin'],
    castsInputs: true,
    // The code of cee6c0d9 has it off unless it is given; the documentation of the JavaScript API says true.
    halvesF32:
      'HTP computes f32 data in f16 where enable_htp_fp16_precision is on: by the documentation the default, by the code of cee6c0d9 not. Give it as 0 for f32.',
    source: QNN_LIST,
  },
};

const CANN_LIST = `${AT}/cann/cann_graph.cc`;
const CANN_KERNELS = `${AT}/cann/cann_execution_provider.cc`;

/** Ascend. */
export const ORT_CANN: DeviceProfile = {
  name: 'ort-cann',
  title: "ONNX Runtime's CANN provider on Ascend",
  sources: [CANN_LIST, CANN_KERNELS],
  operators: [{ op: 'rope', name: 'primitives', call: 'primitives', rules: [floats(CANN_KERNELS)] }],
  lacks: ['RotaryEmbedding', 'Attention', 'com.microsoft.RotaryEmbedding', 'com.microsoft.GroupQueryAttention'].map(
    (name) => ({ name, source: CANN_LIST }),
  ),
  onnx: {
    names: [...COMMON, 'Cos', 'Mod', 'Round', 'ScatterND', 'Sin'],
    castsInputs: true,
    source: CANN_LIST,
  },
};

const COREML_LIST = `${AT}/coreml/builders/op_builder_factory.cc`;
const COREML_BASE = `${AT}/coreml/builders/impl/base_op_builder.cc`;
const COREML_RESHAPE = `${AT}/coreml/builders/impl/reshape_op_builder.cc`;

/** Apple's Neural Engine, GPU and CPU. */
export const ORT_COREML: DeviceProfile = {
  name: 'ort-coreml',
  title: "ONNX Runtime's CoreML provider, as an ML program",
  sources: [COREML_LIST, COREML_BASE, COREML_RESHAPE, `${AT}/coreml/builders/impl/cast_op_builder.cc`],
  operators: [
    { op: 'rope', name: 'primitives', call: 'primitives', rules: [floats(COREML_BASE), fixed(COREML_RESHAPE)] },
  ],
  lacks: ['RotaryEmbedding', 'Attention', 'com.microsoft.RotaryEmbedding', 'com.microsoft.GroupQueryAttention'].map(
    (name) => ({ name, source: COREML_LIST }),
  ),
  onnx: {
    names: [...COMMON, 'Round'],
    castsInputs: false,
    source: COREML_LIST,
  },
};

const WEBNN_LIST = `${AT}/webnn/builders/op_builder_factory.cc`;
const WEBNN_ROPE = `${AT}/webnn/builders/impl/rotaryEmbedding_op_builder.cc`;
const WEBNN_SHAPES = `${AT}/webnn/builders/helper.cc`;
const WEBNN_RUN = 'onnxruntime-web 1.30.0 in Chromium 147, measured: docs/export.md';
const WEBNN_GQA = `${AT}/webnn/builders/impl/gqa_op_builder.cc`;

/** The NPU API of the web. */
export const ORT_WEBNN: DeviceProfile = {
  name: 'ort-webnn',
  title: "onnxruntime-web's WebNN provider",
  sources: [WEBNN_LIST, WEBNN_ROPE, WEBNN_GQA, WEBNN_SHAPES, WEBNN_RUN],
  operators: [
    {
      op: 'rope',
      name: 'RotaryEmbedding',
      call: 'standard',
      rules: [
        floats(WEBNN_ROPE),
        fixed(WEBNN_SHAPES),
        {
          words: 'position_ids are given, of one axis: it slices cos and sin of each token wrongly',
          source: WEBNN_RUN,
          holds: ({ axes }) => axes === 1,
        },
      ],
    },
    { op: 'rope', name: 'primitives', call: 'primitives', rules: [floats(WEBNN_ROPE), fixed(WEBNN_SHAPES)] },
    {
      op: 'attention',
      name: 'com.microsoft.GroupQueryAttention',
      rules: [
        floats(WEBNN_GQA),
        {
          words: 'a call is one token, or a prompt from the start',
          source: WEBNN_GQA,
          holds: ({ seq, total }) => seq === 1 || seq === total,
        },
      ],
    },
  ],
  lacks: [{ name: 'Attention', source: WEBNN_LIST }],
  onnx: {
    names: [...COMMON, 'Cos', 'RotaryEmbedding', 'Round', 'ScatterND', 'Sin'],
    castsInputs: true,
    source: WEBNN_LIST,
  },
};

const WEBGPU_ROPE = 'microsoft/onnxruntime@182f6892 onnxruntime/core/providers/webgpu/llm/rotary_embedding.cc';
const WEBGPU_ATTENTION = 'microsoft/onnxruntime@1baf1951 onnxruntime/core/providers/webgpu/llm/attention.cc';
const WEBGPU_LIST = `${AT}/webgpu/webgpu_execution_provider.cc`;
const WEBGPU_TYPES = `${AT}/webgpu/webgpu_supported_types.h`;
const WEBGPU_GQA = 'onnxruntime/onnxruntime-qnn@cee6c0d9 onnxruntime/contrib_ops/webgpu/bert/group_query_attention.cc';

/** The GPU, beside NPUs for comparison. */
export const ORT_WEBGPU: DeviceProfile = {
  name: 'ort-webgpu',
  title: "ONNX Runtime's WebGPU provider",
  sources: [WEBGPU_LIST, WEBGPU_ROPE, WEBGPU_GQA],
  operators: [
    { op: 'rope', name: 'RotaryEmbedding', call: 'standard', rules: [floats(WEBGPU_TYPES)] },
    { op: 'rope', name: 'primitives', call: 'primitives', rules: [floats(WEBGPU_TYPES)] },
    { op: 'attention', name: 'com.microsoft.GroupQueryAttention', rules: [floats(WEBGPU_GQA)] },
  ],
  lacks: [{ name: 'Attention', source: WEBGPU_ATTENTION }],
  onnx: {
    names: [...COMMON, 'Cos', 'RotaryEmbedding', 'ScatterND', 'Sin'],
    castsInputs: true,
    source: WEBGPU_LIST,
  },
};
