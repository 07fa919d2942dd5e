/** The tab Convert writes one layer's RoPE as the arguments of every peer. @module */
import type { Conversion } from '@ropewalk/dialects';
import { writeNpy } from '@ropewalk/formats';
import { useEffect, useState } from 'preact/hooks';
import type { RopeSpec } from 'ropewalk';
import { useAddress, useAddressNumber } from '../shared/address.js';
import { Code, download } from '../shared/copy.js';
import { Failure } from '../shared/failure.js';
import { HeatMap } from '../shared/heat-map.js';
import type { Read } from './model.js';
import { type Call, Count } from './parts.js';
import type { Converted } from './rope.worker.js';

/** This many rows are 128 MB of cos and sin for a head of 128. */
const MAX_ROWS = 2 ** 17;

/** Writes JSON with each list of numbers on one line. */
function jsonOf(value: unknown, indent = ''): string {
  if (Array.isArray(value)) return `[${value.map((item) => jsonOf(item, indent)).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const inside = `${indent}  `;
  const fields = Object.entries(value).map(([key, item]) => `${inside}${JSON.stringify(key)}: ${jsonOf(item, inside)}`);
  return fields.length === 0 ? '{}' : `{\n${fields.join(',\n')}\n${indent}}`;
}

function Words({ conversion }: { readonly conversion: Conversion }) {
  const { target, call, tables, notes, relayout, error } = conversion;
  const within = (size: number): string => (size === 0 ? 'exactly' : `within ${size.toExponential(1)}`);
  return (
    <>
      <h3>
        <code>{call}</code>
      </h3>
      <Code text={jsonOf(conversion.arguments)} label={`Arguments of ${call}`} />
      {tables.length > 0 && (
        <div class="actions">
          {tables.map(({ name, shape, data }) => (
            <button
              key={name}
              type="button"
              onClick={() =>
                download(
                  `${name}.npy`,
                  new Uint8Array(writeNpy(data, { dtype: 'f32', shape })),
                  'application/octet-stream',
                )
              }
            >
              Save {name}.npy, f32 [{shape.join(', ')}]
            </button>
          ))}
        </div>
      )}
      {notes.length > 0 && (
        <ul>
          {notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
      <p>
        <span class="tag good">read back</span> {target}'s own rules make the same RoPE of it
        {relayout && `, in pairing ${relayout.to}`}: frequencies {within(error.invFreq)}, magnitude{' '}
        {within(error.attentionFactor)}.
      </p>
    </>
  );
}

/** A head with more dimensions has a matrix too large to look at. */
const MAX_MATRIX = 256;

/** The matrix R of a position: y = R·x. */
function Matrix({ spec, call }: { readonly spec: RopeSpec; readonly call: Call }) {
  const [position, setPosition] = useAddressNumber('at', 1, { min: 0, max: 2 ** 31 - 1 });
  const [values, setValues] = useState<Float64Array>();
  const [error, setError] = useState<unknown>();
  const { headDim } = spec;
  useEffect(() => {
    let current = true;
    setError(undefined);
    call((ropes) => ropes.matrix(spec, position)).then(
      (result) => current && setValues(result),
      (failure) => current && setError(failure),
    );
    return () => {
      current = false;
    };
  }, [spec, position]);
  const axis = (name: string) => ({ name, first: '0', last: `${headDim - 1}` });
  return (
    <>
      <div class="fields">
        <Count
          label="Position"
          value={position}
          min={0}
          max={2 ** 31 - 1}
          onChange={(value) => value !== undefined && setPosition(value)}
        />
      </div>
      <Failure error={error} next="Choose another position." />
      {values?.length === headDim ** 2 && (
        <HeatMap
          values={values}
          rows={headDim}
          columns={headDim}
          scale="signed"
          limit={1}
          x={axis('dimension of x')}
          y={axis('of y')}
          ends={['−1', '+1']}
          label={`The matrix of position ${position}, ${headDim} × ${headDim}: y = R·x`}
          wordsOf={(row, column, value) => `R[${row}, ${column}] = ${Number(value.toPrecision(7))}`}
        />
      )}
    </>
  );
}

/**
 * The tab Convert.
 *
 * @param read - the model, whose names and heads some peers need
 */
export function Convert(props: {
  readonly spec: RopeSpec;
  readonly layerType: string | undefined;
  readonly read: Read;
  readonly context: number | undefined;
  readonly call: Call;
}) {
  const { spec, layerType, read, context, call } = props;
  const [peer, setPeer] = useAddress('peer', 'ggml');
  const [rows, setRows] = useAddressNumber('rows', 0, { min: 0, max: MAX_ROWS });
  const [converted, setConverted] = useState<readonly Converted[]>();
  const [error, setError] = useState<unknown>();
  const [open, setOpen] = useState(false);
  useEffect(() => {
    let current = true;
    setError(undefined);
    const { heads, maxContext } = read;
    const options = { context, maxContext, heads, layerType, ...read.names, ...(rows > 0 && { positions: rows }) };
    call((ropes) => ropes.convert(spec, options)).then(
      (result) => current && setConverted(result),
      (failure) => current && setError(failure),
    );
    return () => {
      current = false;
    };
  }, [spec, layerType, read, context, rows]);
  const chosen = converted?.find((one) => one.peer === peer) ?? converted?.[0];
  return (
    <>
      <p>
        The same rotation in the arguments of twelve peers. Each is read back by the peer's own rules before it is
        shown; what a peer cannot say is refused.
      </p>
      <Failure error={error} next="Reload the page." />
      {converted && chosen && (
        <div class="explore-convert">
          <fieldset class="explore-peers">
            <legend>Peer</legend>
            {converted.map((one) => (
              <label key={one.peer} title={one.about}>
                <input type="radio" name="peer" checked={one === chosen} onChange={() => setPeer(one.peer)} />
                <span>{one.peer}</span>
                {'refusal' in one && <span class="tag warn">cannot</span>}
              </label>
            ))}
          </fieldset>
          <section class="explore-words" aria-label={`In the words of ${chosen.peer}`} aria-live="polite">
            <p class="muted">{chosen.about}</p>
            {'conversion' in chosen ? (
              <Words conversion={chosen.conversion} />
            ) : (
              <p class="notice warn">{chosen.refusal}</p>
            )}
            <details>
              <summary>Tables of cos and sin</summary>
              <p>
                Peers that take tables (onnx, infiniop, aclnn, flashinfer …) get them for positions 0 to N − 1, computed
                in float64 and rounded once to f32.
              </p>
              <div class="fields">
                <Count
                  label="N, rows of tables"
                  value={rows || undefined}
                  max={MAX_ROWS}
                  placeholder="none"
                  onChange={(value) => setRows(value ?? 0)}
                />
              </div>
            </details>
            {spec.headDim <= MAX_MATRIX && (
              <details onToggle={(event) => setOpen(event.currentTarget.open)}>
                <summary>The matrix by which a head is multiplied</summary>
                {open && <Matrix spec={spec} call={call} />}
              </details>
            )}
          </section>
        </div>
      )}
    </>
  );
}
