/** ONNX Runtime's execution providers for NPUs, and those that reach them through a browser. @module */
import type { FloatDtype } from 'ropewalk';
import { type AttentionUse, type DeviceProfile, type DeviceRule, type RopeUse, rotation, rule } from '../profile.js';

/** One state of ONNX Runtime with all of its providers; the QNN provider has moved on in its own repository since. */
const AT = 'onnxruntime/onnxruntime-qnn@cee6c0d9 onnxruntime/core/providers';
const QNN = (commit: string, file: string): string =>
  `onnxruntime/onnxruntime-qnn@${commit} onnxruntime/core/providers/qnn/builder/${file}`;

const floats = <Use extends RopeUse | AttentionUse>(source: string): DeviceRule<Use> =>
  rule(
    'data are f32 or f16',
    source,
    ({ dtype }: { readonly dtype: FloatDtype }) => dtype === 'f32' || dtype === 'f16',
  );
const fixed = (source: string): DeviceRule<RopeUse> =>
  rule('batch and sequence are fixed when the session opens', source, ({ fixedShapes }) => fixedShapes);

/** The operators that graphs of RoPE need and all of these runtimes have. */
const COMMON = [
  ...['Add', 'Cast', 'Concat', 'Div', 'Gather', 'Mul', 'ReduceMean', 'ReduceSum', 'Reshape', 'Slice', 'Split', 'Sqrt'],
  ...['Squeeze', 'Sub', 'Transpose', 'Unsqueeze'],
];
/** The operators that compute a whole RoPE or a whole attention. */
const FUSED = ['RotaryEmbedding', 'Attention', 'com.microsoft.RotaryEmbedding', 'com.microsoft.GroupQueryAttention'];

const QNN_ROPE = QNN('70bc4fba', 'opbuilder/rotary_embedding_op_builder.cc');
const QNN_SHAPES = `${AT}/qnn/builder/qnn_model.cc`;
const QNN_ATTENTION = QNN('02dc787c', 'opbuilder/attention_op_builder.cc');
const QNN_GQA = QNN('02dc787c', 'opbuilder/group_query_attention_op_builder.cc');
/** These say what enable_htp_fp16_precision does: the documentation, and the code. */
const QNN_HALVES = 'onnxruntime.ai/docs/api/js QnnExecutionProviderOption: enableFp16Precision';
const QNN_PROVIDER = `${AT}/qnn/qnn_execution_provider.cc`;
const QNN_LIST = QNN('001cffc6', 'op_builder_factory.cc');

/** Qualcomm's NPU. */
export const ORT_QNN: DeviceProfile = {
  name: 'ort-qnn',
  title: "ONNX Runtime's QNN provider on Qualcomm's HTP",
  sources: [QNN_LIST, QNN_ROPE, QNN_ATTENTION, QNN_GQA, 'onnxruntime/onnxruntime-qnn#659', QNN_HALVES, QNN_PROVIDER],
  operators: [
    rotation('RotaryEmbedding', 'standard', [floats(QNN_ROPE), fixed(QNN_SHAPES)]),
    rotation('primitives', 'primitives', [floats(QNN_ROPE), fixed(QNN_SHAPES)]),
    {
      op: 'attention',
      name: 'Attention',
      rules: [
        floats(QNN_ATTENTION),
        rule(
          'heads of q are a multiple of those of k and v',
          QNN_ATTENTION,
          ({ heads, kvHeads }) => heads % kvHeads === 0,
        ),
      ],
    },
    {
      op: 'attention',
      name: 'com.microsoft.GroupQueryAttention',
      rules: [
        rule(
          'a window is no smaller than the cache',
          QNN_GQA,
          ({ window, total }) => window === undefined || window >= total,
        ),
        rule('scores are not capped', QNN_GQA, ({ softcap }) => !softcap),
        rule('there are no sinks', QNN_GQA, ({ sinks }) => !sinks),
      ],
    },
  ],
  lacks: [{ name: 'com.microsoft.RotaryEmbedding', source: QNN_ROPE }],
  onnx: {
    // Mod is there without fmod only, and angles f32-reduced need fmod.
    names: [...COMMON, 'Cos', 'RMSNormalization', 'RotaryEmbedding', 'Round', 'ScatterND', 'Sin'],
    castsInputs: true,
    // In the code of cee6c0d9 the option is off by default; the documentation of the JavaScript API says true.
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
  operators: [rotation('primitives', 'primitives', [floats(CANN_KERNELS)])],
  lacks: FUSED.map((name) => ({ name, source: CANN_LIST })),
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
  operators: [rotation('primitives', 'primitives', [floats(COREML_BASE), fixed(COREML_RESHAPE)])],
  lacks: FUSED.map((name) => ({ name, source: COREML_LIST })),
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
    rotation('RotaryEmbedding', 'standard', [
      floats(WEBNN_ROPE),
      fixed(WEBNN_SHAPES),
      rule(
        'position_ids are given, of one axis: it slices cos and sin of each token wrongly',
        WEBNN_RUN,
        ({ axes }) => axes === 1,
      ),
    ]),
    rotation('primitives', 'primitives', [floats(WEBNN_ROPE), fixed(WEBNN_SHAPES)]),
    {
      op: 'attention',
      name: 'com.microsoft.GroupQueryAttention',
      rules: [
        floats(WEBNN_GQA),
        rule(
          'a call is one token, or a prompt from the start',
          WEBNN_GQA,
          ({ seq, total }) => seq === 1 || seq === total,
        ),
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
    rotation('RotaryEmbedding', 'standard', [floats(WEBGPU_TYPES)]),
    rotation('primitives', 'primitives', [floats(WEBGPU_TYPES)]),
    { op: 'attention', name: 'com.microsoft.GroupQueryAttention', rules: [floats(WEBGPU_GQA)] },
  ],
  lacks: [{ name: 'Attention', source: WEBGPU_ATTENTION }],
  onnx: {
    names: [...COMMON, 'Cos', 'RotaryEmbedding', 'ScatterND', 'Sin'],
    castsInputs: true,
    source: WEBGPU_LIST,
  },
};
