/** The page AI Core runs RoPE kernels, and a visitor's own, on the modelled Ascend AI Core, cycle by cycle. @module */
import './aicore.css';
import {
  CHIPS,
  type ChipName,
  type KernelName,
  type KernelRun,
  type MeasuredKernel,
  QUEUES,
  ROPE_KERNELS,
} from '@ropewalk/ascend';
import { proxy } from 'comlink';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useAddress, useAddressNumber } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { download } from '../shared/copy.js';
import { Failure } from '../shared/failure.js';
import { MOST_SECONDS } from '../shared/sandbox.js';
import { Slider } from '../shared/slider.js';
import { type Helper, helper } from '../shared/worker.js';
import { BASE } from '../shell/base.js';
import { draw } from '../shell/draw.js';
import type { Asked, Kernels, Program } from './kernel.worker.js';
import { runOwn } from './own-kernel.js';

/** The slowest kernel takes about ten seconds for this many elements. */
const MAX_ELEMENTS = 2 ** 22;

/** The visitor's own kernel, among the names. */
const OWN = 'your own';
const KERNELS = [...(Object.keys(ROPE_KERNELS) as KernelName[]), OWN] as const;
const CHIP_NAMES = Object.keys(CHIPS) as ChipName[];
const DTYPES = ['f16', 'bf16', 'f32'] as const;
const PAIRINGS = ['interleaved', 'half'] as const;

const oneOf =
  <T extends string>(names: readonly T[]) =>
  (text: string): text is T =>
    (names as readonly string[]).includes(text);
const isShape = (text: string): text is string => shapeOf(text) !== undefined;

/** Parses a text like `1,128,32,128` into numbers. Any other text gives undefined. */
function shapeOf(text: string): Asked['call']['shape'] | undefined {
  const numbers = text.split(/[,\s×x]+/).map(Number);
  const fits = numbers.length === 4 && numbers.every((n) => Number.isInteger(n) && n > 0);
  return fits && numbers.reduce((a, b) => a * b) <= MAX_ELEMENTS
    ? (numbers as [number, number, number, number])
    : undefined;
}

const whole = (n: number): string => Math.round(n).toLocaleString('en');
const percent = (part: number, of: number): string => (of > 0 ? `${Math.round((100 * part) / of)} %` : '0 %');

/** Writes the time in words. It has a band only if the calibration has one. */
function microseconds({ microseconds: time, microsecondsBand: band, outcome }: KernelRun): string {
  if (time === undefined) return outcome;
  return `${time.toFixed(1)} µs (${typeof band === 'object' ? band.map((n) => n.toFixed(0)).join(' to ') : band})`;
}

type Run = Omit<Asked, 'kernel'> & { readonly kernel: string };

const words = ({ kernel, call, chip, cores, tiling }: Run): string =>
  [
    kernel,
    `[${call.shape.join(', ')}]`,
    call.dtype,
    call.pairing,
    chip,
    cores === undefined ? '' : `${cores} cores`,
    ...Object.entries({ blocks: tiling.blocks, 'rows a tile': tiling.tileRows, buffers: tiling.buffers })
      .filter(([, n]) => n !== undefined)
      .map(([name, n]) => `${n} ${name}`),
  ]
    .filter(Boolean)
    .join(', ');

/** A field for a count that the user may leave to the kernel. */
function Count(props: { readonly label: string; readonly value: number; readonly onChange: (value: number) => void }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <input
        type="number"
        min={1}
        max={65535}
        placeholder="its own choice"
        value={props.value || ''}
        onChange={(event) =>
          props.onChange(Math.min(65535, Math.max(0, Math.trunc(event.currentTarget.valueAsNumber || 0))))
        }
      />
    </label>
  );
}

function Timeline({
  run,
  ask,
}: {
  readonly run: KernelRun;
  readonly ask: <R>(task: (k: Kernels) => unknown) => Promise<R>;
}) {
  const last = Math.max(2, Math.ceil(run.blocks[run.slowest]?.cycles ?? run.cycles));
  const [from, setFrom] = useState(0);
  const [width, setWidth] = useState(Math.min(last, 3000));
  const [svg, setSvg] = useState('');
  const [program, setProgram] = useState<Program>();
  const [line, setLine] = useState<number>();
  const [told, setTold] = useState('');
  const picture = useRef<HTMLElement>(null);
  const source = useRef<HTMLElement>(null);
  const drag = useRef<{ readonly x: number; readonly from: number } | undefined>(undefined);
  const clamp = (cycle: number, span = width): number =>
    Math.round(Math.min(Math.max(cycle, 0), Math.max(0, last - span)));
  const zoom = (factor: number): void => {
    const next = Math.round(Math.min(last, Math.max(20, width * factor)));
    setFrom(clamp(from + (width - next) / 2, next));
    setWidth(next);
  };
  // The worker draws while the page is painted.
  useLayoutEffect(() => {
    let current = true;
    ask<string>((kernels) => kernels.timeline(from, from + width)).then(
      (text) => current && setSvg(text),
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [run, from, width]);
  useEffect(() => {
    ask<Program>((kernels) => kernels.program()).then(setProgram, () => undefined);
  }, [run]);
  // The bars of the chosen line stand out.
  useEffect(() => {
    for (const bar of picture.current?.querySelectorAll<SVGElement>('[data-index]') ?? [])
      bar.classList.toggle('chosen', line !== undefined && program?.lineOf[Number(bar.dataset.index)] === line);
  }, [svg, program, line]);
  /** Scrolls the text, and not the page, to a line that is out of sight. */
  const show = (at: number): void => {
    const box = source.current;
    const row = box?.querySelectorAll<HTMLElement>('tbody tr')[at];
    if (!box || !row) return;
    const top = row.offsetTop - box.scrollTop;
    if (top < 40 || top > box.clientHeight - row.offsetHeight) box.scrollTop = row.offsetTop - box.clientHeight / 3;
  };
  const chooseBar = (target: EventTarget | null): void => {
    const bar = (target as Element | null)?.closest<SVGElement>('[data-index]');
    if (bar) setTold(bar.querySelector('title')?.textContent ?? '');
    const at = bar ? program?.lineOf[Number(bar.dataset.index)] : undefined;
    if (at === undefined) return;
    setLine(at);
    show(at);
  };
  useEffect(() => show(program?.lines.findIndex(({ ran }) => ran) ?? -1), [program]);
  // It can have some hundreds of lines, and a step of the slider changes none of them.
  const table = useMemo(
    () => (
      <table>
        <thead>
          <tr>
            <th scope="col" class="number">
              Cycles
            </th>
            <th scope="col" class="number">
              Instructions
            </th>
            <th scope="col">Queue</th>
            <th scope="col">Line</th>
          </tr>
        </thead>
        <tbody>
          {program?.lines.map(({ text, ran }, n) => (
            <tr key={n} class={n === line ? 'chosen' : undefined} onPointerEnter={() => ran && setLine(n)}>
              <td class="number">{ran && whole(ran.cycles)}</td>
              <td class="number">{ran && whole(ran.instructions)}</td>
              <td>{ran?.queue}</td>
              <td>
                {ran ? (
                  <button
                    type="button"
                    class="aicore-line"
                    onFocus={() => setLine(n)}
                    onClick={() => {
                      setLine(n);
                      setFrom(clamp(ran.first - width / 10));
                    }}
                  >
                    {text}
                  </button>
                ) : (
                  <span class="aicore-line">{text}</span>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    ),
    [program, line, width, last],
  );
  return (
    <>
      <div class="actions">
        <button type="button" onClick={() => zoom(0.5)}>
          Zoom in
        </button>
        <button type="button" onClick={() => zoom(2)}>
          Zoom out
        </button>
        <button
          type="button"
          onClick={() => {
            setFrom(0);
            setWidth(last);
          }}
        >
          Whole block
        </button>
        <span class="muted">
          cycles {whole(from)} to {whole(from + width)} of {whole(last)}
        </span>
      </div>
      <Slider label="First cycle" value={from} min={0} max={Math.max(0, last - width)} onInput={setFrom} />
      <div class="aicore-sides">
        <figure>
          <section
            class="aicore-timeline"
            ref={picture}
            aria-label="Timeline of block 0"
            // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide picture is scrolled with the arrow keys.
            tabIndex={0}
            // timelineSvg escapes every text.
            dangerouslySetInnerHTML={{ __html: svg }}
            onPointerDown={(event) => {
              drag.current = { x: event.clientX, from };
              chooseBar(event.target);
            }}
            onPointerMove={({ currentTarget, target, clientX, buttons }) => {
              if (buttons === 0) chooseBar(target);
              if (drag.current && buttons > 0 && currentTarget.clientWidth > 0)
                setFrom(clamp(drag.current.from - ((clientX - drag.current.x) / currentTarget.clientWidth) * width));
            }}
          />
          <figcaption>
            Block 0: a lane for each queue, S scalar, V vector, MTE2 loads, MTE3 stores. Drag to move; point at a bar or
            touch it for its line, its bytes, and what it waited for.
            <span class="aicore-told" role="status">
              {told}
            </span>
          </figcaption>
        </figure>
        {program === undefined ? (
          <p class="muted">The kernel's text is being written.</p>
        ) : (
          <div>
            <p class="muted">
              {program.noSource === undefined
                ? 'What block 0 does, in AscendC, written from the kernel’s own calls with the sizes of this run; not compiled with CANN. Point at a line for its bars, press it to see where it first runs.'
                : `The kernel's statements; press one to see where it first runs. There is no C++ of this run. ${program.noSource}`}
            </p>
            {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a long text is scrolled with the arrow keys. */}
            <section class="scroll aicore-source" ref={source} tabIndex={0} aria-label="Line by line">
              {table}
            </section>
          </div>
        )}
      </div>
    </>
  );
}

function Report({ measured: { run, rows, right, worst, firstWrong } }: { readonly measured: MeasuredKernel }) {
  const block = run.blocks[run.slowest];
  const { load, store, least } = run.bytes;
  const { used, capacity, buffers } = run.unifiedBuffer;
  const facts: readonly [string, string][] = [
    ['cycles', whole(run.cycles)],
    ['modelled time', microseconds(run)],
    ['rows right', `${whole(right)} of ${whole(rows)}`],
    ['largest difference to the exact value', worst.toExponential(1)],
    ['blocks, waves', `${run.blockCount}, ${run.waves}`],
    ['bytes loaded, fewest possible', `${whole(load)}, ${whole(least.load)}`],
    ['bytes stored, fewest possible', `${whole(store)}, ${whole(least.store)}`],
    ['unified buffer used', `${whole(used)} of ${whole(capacity)} bytes`],
    ...QUEUES.map((queue): [string, string] => [`${queue} is busy`, percent(run.busy[queue], block?.cycles ?? 0)]),
  ];
  return (
    <>
      <dl class="aicore-facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {run.bottleneck && <p class="notice">{run.bottleneck.advice}</p>}
      {firstWrong && (
        <p class="notice error">
          The first wrong element: row {firstWrong.row}, element {firstWrong.column} is {firstWrong.got}; exact is{' '}
          {firstWrong.exact}, and {firstWrong.bound.toPrecision(2)} off is allowed.
        </p>
      )}
      <h3>Findings beside the statement</h3>
      {run.findings.length === 0 ? (
        <p>
          <span class="tag good">none</span> No access past a tensor, no race, no hang, no byte unread or unwritten.
        </p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table is scrolled with the arrow keys.
        <section class="scroll" tabIndex={0} aria-label="Findings">
          <table>
            <thead>
              <tr>
                <th scope="col">The kernel's statement</th>
                <th scope="col">Finding</th>
                <th scope="col">Times</th>
              </tr>
            </thead>
            <tbody>
              {run.findings.map(({ kind, line, message, count }) => (
                <tr key={line + kind + message}>
                  <th scope="row" class="aicore-line">
                    {line}
                  </th>
                  <td>
                    <span class="tag bad">{kind}</span> {message}
                  </td>
                  <td>{whole(count)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      <details>
        <summary>Buffers</summary>
        <ul>
          {buffers.map(({ name, kind, offset, size, num }) => (
            <li key={name}>
              <code>{name}</code>: {kind}, {num} × {size} bytes from {offset}
            </li>
          ))}
        </ul>
      </details>
    </>
  );
}

/** A run in the table of comparisons. */
interface Compared {
  readonly asked: Run;
  readonly run: KernelRun;
  readonly allRight: boolean;
}

/** An editor with the kernel of the docs. It is loaded when it is asked for. */
function OwnKernel({
  text,
  onChange,
}: {
  readonly text: string | undefined;
  readonly onChange: (text: string) => void;
}) {
  const [Loaded, setLoaded] = useState<{ readonly Editor: typeof import('../shared/editor.js').Editor }>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    void Promise.all([import('../shared/editor.js'), import('virtual:own-kernel')])
      .then(([{ Editor }, { EXAMPLE }]) => {
        if (text === undefined) onChange(EXAMPLE);
        setLoaded({ Editor });
      })
      .catch(setError);
  }, []);
  return (
    <>
      <Failure error={error} />
      {Loaded && text !== undefined ? (
        <Loaded.Editor label="The kernel, in AscendC’s calls" language="js" text={text} onChange={onChange} />
      ) : (
        <p class="muted">The editor is being loaded.</p>
      )}
      <p class="muted">
        <a href={`${BASE}docs/aicore-kernels/`}>The calls, and what each of them checks.</a> It runs in a worker without
        network or storage, and is ended after {MOST_SECONDS.aicore} seconds. An operator other than rope takes the
        shape and the dtype alone.
      </p>
    </>
  );
}

function AiCore() {
  const [kernel, setKernel] = useAddress('kernel', 'fast', oneOf(KERNELS));
  const [shape, setShape] = useAddress('shape', '1,128,32,128', isShape);
  const [dtype, setDtype] = useAddress('dtype', 'f16', oneOf(DTYPES));
  const [pairing, setPairing] = useAddress('pairing', 'interleaved', oneOf(PAIRINGS));
  const [chip, setChip] = useAddress('chip', '910B3', oneOf(CHIP_NAMES));
  const count = { min: 0, max: 65535 };
  const [cores, setCores] = useAddressNumber('cores', 0, count);
  const [blocks, setBlocks] = useAddressNumber('blocks', 0, count);
  const [tileRows, setTileRows] = useAddressNumber('tile', 0, count);
  const [buffers, setBuffers] = useAddressNumber('buffers', 0, count);
  const [typed, setTyped] = useState(shape);
  const [busy, setBusy] = useState<number>();
  const [measured, setMeasured] = useState<MeasuredKernel>();
  const [history, setHistory] = useState<readonly Compared[]>([]);
  const [error, setError] = useState<unknown>();
  const [text, setText] = useState<string>();
  const stopOwn = useRef(new AbortController());
  const worker = useRef<Helper<Kernels> | undefined>(undefined);
  const call = <R,>(task: Parameters<Helper<Kernels>['call']>[0]): Promise<R> => {
    worker.current ??= helper<Kernels>('aicore');
    return worker.current.call(task) as Promise<R>;
  };

  async function measure(): Promise<void> {
    const dims = shapeOf(typed);
    if (dims === undefined) {
      setError(
        new Error(
          `The shape takes four whole numbers, batch, tokens, heads and head_dim, of at most ${whole(MAX_ELEMENTS)} elements.`,
        ),
      );
      return;
    }
    setShape(typed);
    setError(undefined);
    setMeasured(undefined);
    setBusy(0);
    const asked = {
      kernel,
      call: { shape: dims, dtype, pairing, rotaryDim: dims[3], base: 10000, batchPositions: false, tableLen: dims[1] },
      chip,
      ...(cores > 0 && { cores }),
      tiling: { ...(blocks > 0 && { blocks }), ...(tileRows > 0 && { tileRows }), ...(buffers > 0 && { buffers }) },
    };
    try {
      const result = await (kernel === OWN ? measureOwn(asked) : measureShipped({ ...asked, kernel }));
      setMeasured(result);
      const name = kernel === OWN ? `${OWN}, ${result.run.kernel}` : kernel;
      const compared = { asked: { ...asked, kernel: name }, run: result.run, allRight: result.right === result.rows };
      setHistory((now) => [...now, compared]);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(undefined);
    }
  }
  function measureShipped(asked: Asked): Promise<MeasuredKernel> {
    const onBlock = proxy((done: number, total: number) => setBusy(done / total));
    return call<MeasuredKernel>((kernels) => kernels.measure(asked, onBlock) as Promise<MeasuredKernel>);
  }
  async function measureOwn({ call: of, chip, cores, tiling }: Run): Promise<MeasuredKernel> {
    stopOwn.current = new AbortController();
    const { shape, dtype, pairing, base, batchPositions, tableLen } = of;
    const rope = { spec: { headDim: shape[3], pairing, base }, batchPositions, tableLen };
    const options = { chip, ...(cores !== undefined && { cores }), ...(Object.keys(tiling).length > 0 && { tiling }) };
    const measured = await runOwn(text ?? '', { call: { shape, dtype }, rope, options }, stopOwn.current.signal);
    return call<MeasuredKernel>((kernels) => kernels.take(measured) as Promise<MeasuredKernel>);
  }
  function stop(): void {
    stopOwn.current.abort();
    worker.current?.end();
    worker.current = undefined;
  }
  useEffect(() => {
    if (kernel !== OWN) void measure(); // measure the call in the address
    return stop;
  }, []);
  const best = Math.min(...history.filter(({ allRight }) => allRight).map(({ run }) => run.cyclesPerRow));
  return (
    <>
      <div class="fields">
        <Choice label="Kernel" value={kernel} of={KERNELS} onChange={setKernel} />
        <label class="field">
          <span>Shape: batch, tokens, heads, head_dim</span>
          <input type="text" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <Choice label="dtype" value={dtype} of={DTYPES} onChange={setDtype} />
        <Choice label="Pairs" value={pairing} of={PAIRINGS} onChange={setPairing} />
        <Choice label="Chip" value={chip} of={CHIP_NAMES} onChange={setChip} />
        <Count label="Cores" value={cores} onChange={setCores} />
        <Count label="Blocks" value={blocks} onChange={setBlocks} />
        <Count label="Rows a tile" value={tileRows} onChange={setTileRows} />
        <Count label="Buffers" value={buffers} onChange={setBuffers} />
      </div>
      {kernel === OWN && <OwnKernel text={text} onChange={setText} />}
      <div class="actions">
        <button
          type="button"
          class="primary"
          disabled={busy !== undefined || (kernel === OWN && text === undefined)}
          onClick={() => void measure()}
        >
          Run on the model
        </button>
        <button type="button" disabled={busy === undefined} onClick={stop}>
          Stop
        </button>
        {kernel !== OWN && (
          <button type="button" onClick={() => setKernel(OWN)}>
            Write your own
          </button>
        )}
      </div>
      {busy !== undefined && <progress max={1} value={busy} aria-label="Blocks that ran" />}
      <Failure error={error} />
      <p role="status" class="visually-hidden">
        {measured &&
          `${measured.run.kernel}: ${whole(measured.run.cycles)} cycles, ${measured.run.findings.length} findings`}
      </p>
      {measured && (
        <>
          <h2>{measured.run.kernel} kernel</h2>
          <Report measured={measured} />
          <h2>Timeline</h2>
          <Timeline run={measured.run} ask={(task) => call(task as never)} />
          <div class="actions">
            <button
              type="button"
              onClick={() =>
                void call<string>((kernels) => kernels.trace()).then((text) =>
                  download('trace.json', text, 'application/json'),
                )
              }
            >
              Save block 0 for Perfetto
            </button>
            <span class="muted">
              Open the file at <a href="https://ui.perfetto.dev/">ui.perfetto.dev</a>.
            </span>
          </div>
        </>
      )}
      {history.length > 0 && (
        <>
          <h2>Runs beside each other</h2>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table is scrolled with the arrow keys. */}
          <section class="scroll" tabIndex={0} aria-label="Runs">
            <table>
              <thead>
                <tr>
                  <th scope="col">Run</th>
                  <th scope="col" class="number">
                    Cycles
                  </th>
                  <th scope="col" class="number">
                    Cycles a written row
                  </th>
                  <th scope="col" class="number">
                    Times the best right one
                  </th>
                  <th scope="col">Modelled time</th>
                  <th scope="col">Result</th>
                </tr>
              </thead>
              <tbody>
                {history.map(({ asked, run, allRight }, i) => (
                  <tr key={i}>
                    <th scope="row">{words(asked)}</th>
                    <td class="number">{whole(run.cycles)}</td>
                    <td class="number">{run.cyclesPerRow.toFixed(1)}</td>
                    <td class="number">{Number.isFinite(best) ? (run.cyclesPerRow / best).toFixed(2) : '–'}</td>
                    <td>{microseconds(run)}</td>
                    <td>
                      <span class={`tag ${allRight ? 'good' : 'bad'}`}>{allRight ? 'right' : 'wrong'}</span>{' '}
                      {run.findings.length > 0 && `${run.findings.length} findings`}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        </>
      )}
    </>
  );
}

export default draw(<AiCore />);
