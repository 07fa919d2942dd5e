/** The tab Export writes a layer's RoPE as an ONNX model. @module */
import { useState } from 'preact/hooks';
import type { RopeSpec } from 'ropewalk';
import { useAddress } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { download } from '../shared/copy.js';
import { Failure } from '../shared/failure.js';
import { type Read, whole } from './model.js';
import { type Call, Count } from './parts.js';
import type { Exported, ExportWish } from './rope.worker.js';

const FORMS = {
  standard: 'standard: RotaryEmbedding, opset 23',
  primitives: 'primitives: only basic operators',
} as const;
const DTYPES = { f32: 'f32', f16: 'f16', bf16: 'bf16', f64: 'f64' } as const;
const LAYOUTS = { bsnh: '[batch, seq, heads, head_dim]', bnsh: '[batch, heads, seq, head_dim]' } as const;
const ANGLES = {
  '': 'as the form has it',
  'f32-table': 'a table, f32',
  'f16-table': 'a table, f16',
  'f32-reduced': 'computed, exact at every position',
  f32: 'computed in f32, as most exporters do',
  f64: 'computed in f64',
} as const;
/** The longest context, because tables in the file take 8 bytes per pair and position. */
const MAX_CONTEXT = 2 ** 20;

const keyOf =
  <T extends string>(of: Readonly<Record<T, string>>) =>
  (text: string): text is T =>
    Object.hasOwn(of, text);

/**
 * The tab Export.
 *
 * @param title - the title of the model in the file, such as `RoPE of …, layers …`
 */
export function Export(props: {
  readonly spec: RopeSpec;
  readonly read: Read;
  readonly title: string;
  readonly call: Call;
}) {
  const { spec, read, title, call } = props;
  const [form, setForm] = useAddress('form', 'standard', keyOf(FORMS));
  const [dtype, setDtype] = useAddress('dtype', 'f32', keyOf(DTYPES));
  const [layout, setLayout] = useAddress('layout', 'bsnh', keyOf(LAYOUTS));
  const [angles, setAngles] = useAddress('angles', '', keyOf(ANGLES));
  const [heads, setHeads] = useState<number | undefined>(read.heads ?? 1);
  const [kvHeads, setKvHeads] = useState<number | undefined>(read.kvHeads);
  const [context, setContext] = useState<number>();
  const [made, setMade] = useState<Exported>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function build(): Promise<void> {
    setError(undefined);
    setMade(undefined);
    setBusy(true);
    const wish: ExportWish = {
      title,
      spec,
      form,
      dtype,
      layout,
      heads: heads ?? 1,
      ...(angles !== '' && { angles }),
      ...(kvHeads !== undefined && { kvHeads }),
      ...(context !== undefined && { context }),
    };
    try {
      const result = await call((ropes) => ropes.exportOnnx(wish));
      setMade(result);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  }
  return (
    <>
      <p>
        A model that any ONNX runtime loads. Batch and sequence are open, positions are an input, and what scaling does
        is in the constants.
      </p>
      <div class="fields">
        <Choice label="Form" value={form} of={FORMS} onChange={setForm} />
        <Choice label="Angles" value={angles} of={ANGLES} onChange={setAngles} />
        <Choice label="Data" value={dtype} of={DTYPES} onChange={setDtype} />
        <Choice label="Layout" value={layout} of={LAYOUTS} onChange={setLayout} />
        <Count label="Heads of q" value={heads} max={65536} onChange={setHeads} />
        <Count label="Heads of k" value={kvHeads} max={65536} placeholder="no k: one tensor x" onChange={setKvHeads} />
        <Count
          label="Positions"
          value={context}
          max={MAX_CONTEXT}
          placeholder="4096 of a table, else all"
          onChange={setContext}
        />
      </div>
      <div class="actions">
        <button type="button" class="primary" disabled={busy} onClick={() => void build()}>
          Build the model
        </button>
        {made && (
          <button type="button" onClick={() => download('rope.onnx', made.bytes, 'application/octet-stream')}>
            Save rope.onnx
          </button>
        )}
      </div>
      <Failure error={error} next="Change the form or the angles, and build again." />
      <div role="status">
        {busy && <p class="muted">Building …</p>}
        {made && (
          <div class="card">
            <h3>rope.onnx, {whole(made.bytes.length)} bytes</h3>
            <dl class="explore-facts wide">
              {(
                [
                  ['inputs', made.inputs.join('; ')],
                  ['outputs', made.outputs.join('; ')],
                  ['operators', made.nodes.join(', ')],
                  ['angles', `${made.angles}, for positions 0 to ${whole(made.context - 1)}`],
                  [
                    'cos and sin are off by at most',
                    made.precision
                      .map(({ position, maxError }) => `${maxError.toExponential(1)} at ${whole(position)}`)
                      .join(', '),
                  ],
                ] as const
              ).map(([name, value]) => (
                <div key={name}>
                  <dt>{name}</dt>
                  <dd>{value}</dd>
                </div>
              ))}
            </dl>
          </div>
        )}
      </div>
    </>
  );
}
