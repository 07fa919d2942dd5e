/** The kernel's entry and the functions of the host that launch it, by ACL. @module */
import type { KernelDeclaration } from '../kernels/declaration.js';
import type { OperatorCall } from '../kernels/operators.js';
import type { GlobalTensor } from '../memory.js';
import { identifier, typeOf } from './cpp.js';

/** The facts of an emitted kernel. */
interface Emitted {
  readonly kernel: KernelDeclaration;
  readonly call: OperatorCall;
  readonly parameters: readonly { readonly name: string; readonly role: string; readonly tensor: GlobalTensor }[];
  readonly blocks: number;
  readonly facts: object;
}

/** The types of `rope_kernel_launch` by their numbers in infinicore.h; the model's positions are i32. */
const DATA_TYPES = { f16: 12, f32: 13, bf16: 19 } as const;
const I32 = 5;

/** Writes the entry, a launch on tensors of the device, and one that brings them there and back. */
export function hostSource(o: Emitted): string[] {
  const { kernel, parameters, blocks } = o;
  const name = identifier(kernel.name);
  const all = parameters.map((one) => one.name);
  const isRope = kernel.operator === 'rope';
  const bytes = ({ role, tensor }: Emitted['parameters'][number]): string =>
    role === 'cos' || role === 'sin'
      ? `table_len * ${(o.facts as { half: number }).half * tensor.size}`
      : `${tensor.high * tensor.size}`;
  return [
    `extern "C" __global__ __aicore__ void ${name}_kernel(${all.map((one) => `GM_ADDR ${one}`).join(', ')}) {`,
    '  Kernel kernel;',
    `  kernel.Init(${all.join(', ')});`,
    '  kernel.Process();',
    '}',
    '',
    '// Launches it on memory of the device.',
    `extern "C" void launch_${name}(${all.map((one) => `void *${one}`).join(', ')}, void *stream) {`,
    `  ${name}_kernel<<<${blocks}, nullptr, stream>>>(${all.map((one) => `(GM_ADDR)${one}`).join(', ')});`,
    '}',
    ...(isRope && o.call.shape[0] === 1 ? ropeLaunch(o, name) : []),
    '',
    '// Launches it on memory of the host, after aclInit and aclrtSetDevice. Returns the status of the call that failed, or 0.',
    `extern "C" aclError ${name}_on_host(${parameters
      .map(({ name, role, tensor }) => `${role === 'out' ? '' : 'const '}${typeOf(tensor.dtype)} *${name}`)
      .join(', ')}${isRope ? ', size_t table_len' : ''}) {`,
    `  void *device[${all.length}] = {};`,
    `  const void *host[${all.length}] = {${all.join(', ')}};`,
    `  const size_t size[${all.length}] = {${parameters.map(bytes).join(', ')}};`,
    '  aclrtStream stream = nullptr;',
    '  aclError status = aclrtCreateStream(&stream);',
    `  for (int n = 0; n < ${all.length} && status == ACL_SUCCESS; n++) {`,
    '    status = aclrtMalloc(&device[n], size[n], ACL_MEM_MALLOC_HUGE_FIRST);',
    '    if (status == ACL_SUCCESS) status = aclrtMemcpy(device[n], size[n], host[n], size[n], ACL_MEMCPY_HOST_TO_DEVICE);',
    '  }',
    '  if (status == ACL_SUCCESS) {',
    `    launch_${name}(${all.map((_, n) => `device[${n}]`).join(', ')}, stream);`,
    '    status = aclrtSynchronizeStream(stream);',
    '  }',
    ...parameters.flatMap((one, n) =>
      one.role === 'out'
        ? [
            `  if (status == ACL_SUCCESS) status = aclrtMemcpy(${one.name}, size[${n}], device[${n}], size[${n}], ACL_MEMCPY_DEVICE_TO_HOST);`,
          ]
        : [],
    ),
    '  for (void *memory : device)',
    '    if (memory) aclrtFree(memory);',
    '  if (stream) aclrtDestroyStream(stream);',
    '  return status;',
    '}',
  ];
}

/** Writes InfiniOp's `rope_kernel_launch` for the one call that the kernel was written for. */
function ropeLaunch({ kernel, call, parameters }: Emitted, name: string): string[] {
  const [, seq, heads, dim] = call.shape as [number, number, number, number];
  const byRole = new Map(parameters.map((one) => [one.role, one.name]));
  const argument: { readonly [role: string]: string } = { out: 'y', x: 'x', positions: 'pos', sin: 'sin', cos: 'cos' };
  const given = Object.keys(kernel.arguments).map((own) => argument[parameters.find((one) => one.name === own)!.role]);
  return byRole.size !== 5
    ? []
    : [
        '',
        "// InfiniOp's entry, for this one call. Returns 0, or 3 (BAD_PARAM), 4 (NULL_POINTER), 10 (BAD_TENSOR_DTYPE).",
        'extern "C" int32_t rope_kernel_launch(void *y, void *x, void *pos, void *sin, void *cos, size_t seq_len, size_t nhead,',
        '                                      size_t dhead, int32_t data_type, int32_t pos_type, ptrdiff_t y_stride_seqlen,',
        '                                      ptrdiff_t y_stride_nhead, ptrdiff_t x_stride_seqlen, ptrdiff_t x_stride_nhead,',
        '                                      void *stream) {',
        `  if (data_type != ${DATA_TYPES[call.dtype]} || pos_type != ${I32}) return 10;`,
        '  if (!y || !x || !pos || !sin || !cos) return 4;',
        `  if (seq_len != ${seq} || nhead != ${heads} || dhead != ${dim}) return 3;`,
        `  if (y_stride_seqlen != ${heads * dim} || y_stride_nhead != ${dim}) return 3;`,
        `  if (x_stride_seqlen != ${heads * dim} || x_stride_nhead != ${dim}) return 3;`,
        `  launch_${name}(${given.join(', ')}, stream);`,
        '  return 0;',
        '}',
      ];
}
