/** The page Home explains Ropewalk, shows a head that turns, and has a link for each kind of user. @module */
import './home.css';
import { BUGS, FIRST_BUG, RIGHT, WRONG } from 'virtual:broken';
import {
  BY_FORMULAS,
  BY_PEERS,
  CASES,
  DEPENDENCIES,
  KNOWN_BUGS,
  MARLINE_BYTES,
  MARLINE_WEIGHTS,
  SMOLLM2_BYTES,
  SMOLLM2_WEIGHTS,
} from 'virtual:figures';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useAddress, useAddressNumber } from '../shared/address.js';
import type { BrokenModel } from '../shared/broken-model.worker.js';
import { Choice } from '../shared/choice.js';
import { Code } from '../shared/copy.js';
import { Failure } from '../shared/failure.js';
import { PairDials } from '../shared/pair-dials.js';
import { rotated } from '../shared/rotate.js';
import { Slider } from '../shared/slider.js';
import { openBroken, TwoTexts } from '../shared/two-texts.js';
import type { Helper } from '../shared/worker.js';
import { BASE, HUB } from '../shell/base.js';
import { draw } from '../shell/draw.js';

const HEAD_DIM = 16;
const LAST = 128;
/** The pairs have different lengths, so that the dials look different. */
const X = Float64Array.from({ length: HEAD_DIM }, (_, i) => Math.cos(2.4 * i + 0.5) * (1 - i / 40));

const DIALECTS = ['ggml', 'GGUF', 'ONNX', 'HuggingFace', 'InfiniOp', 'LLAISYS', 'CANN', 'flash-attn'];
const VERIFY = `npx ropewalk harness cuda -o my_rope.cu   # or c, torch, triton, ggml, aclnn …
npx ropewalk diagnose --x x.npy --y y.npy --positions positions.npy --expect config.json`;
const CONVERT = `npx ropewalk inspect model.gguf           # the RoPE that it really has
npx ropewalk convert config.json --to ggml
npx ropewalk diff a/config.json b.gguf`;
const USE = `import { ropewalk } from 'ropewalk';

const rw = await ropewalk();              // WebAssembly SIMD; or { backend: 'webgpu' }
const q = rw.tensor(new Float32Array(2 * 8 * 64).fill(1), { shape: [2, 8, 64] });
const y = rw.rope(q, [8190, 8191], { pairing: 'half', base: 500000 });
console.log(await y.read());`;

const millions = (count: number): string => (count / 1e6).toFixed(1);
const whole = (count: number): string => (count / 1e6).toFixed(0);
const MODELS = {
  marline: { words: `marline (${millions(MARLINE_BYTES)} MB)`, weights: `${millions(MARLINE_WEIGHTS)} million` },
  SmolLM2: { words: `SmolLM2 (${whole(SMOLLM2_BYTES)} MB)`, weights: `${whole(SMOLLM2_WEIGHTS)} million` },
} as const;
const isModel = (text: string): text is keyof typeof MODELS => text in MODELS;
const SMOLLM2 = {
  address: `${HUB}/HuggingFaceTB/SmolLM2-135M-Instruct/resolve/main/`,
  costs: `${whole(SMOLLM2_BYTES)} MB from ${new URL(HUB).host}`,
};

const DOES = new Map(BUGS);
const isBug = (text: string): text is string => DOES.has(text);

/** The dials of the wrong kernel. Those of the first bug need no worker, because they are the other pairing. */
function WrongDials({ bug, position }: { readonly bug: string; readonly position: number }) {
  const [found, setFound] = useState<Float64Array>();
  const [error, setError] = useState<unknown>();
  const worker = useRef<Helper<BrokenModel> | undefined>(undefined);
  useEffect(() => () => worker.current?.end(), []);
  useEffect(() => {
    if (bug === FIRST_BUG) return;
    let wanted = true;
    worker.current ??= openBroken();
    worker.current
      .call((broken) => broken.rotate(bug, X, position))
      .then((y) => wanted && setFound(y))
      .catch((failure) => wanted && setError(failure));
    return () => {
      wanted = false;
    };
  }, [bug, position]);
  const y = bug === FIRST_BUG ? rotated(X, position, { pairing: 'interleaved', base: 10000 }) : found;
  return (
    <>
      <Failure error={error} />
      <PairDials x={X} position={position} pairing="half" {...(y && { y })} />
    </>
  );
}

/** The bundled model with the right kernel, beside one with a bug that the visitor chooses. */
function Broken() {
  const [position, setPosition] = useAddressNumber('position', 7, { min: 0, max: LAST });
  const [bug, setBug] = useAddress('bug', FIRST_BUG, isBug);
  const [model, setModel] = useAddress('model', 'marline', isModel);
  const [asked, setAsked] = useState(0);
  const at = Math.trunc(position);
  const isBundled = model === 'marline';
  useEffect(() => {
    // Only the button asks another host.
    if (bug === FIRST_BUG || !isBundled) return;
    // Who follows a link to a bug has asked for it; the page is drawn first.
    const timer = setTimeout(() => setAsked(1), 300);
    return () => clearTimeout(timer);
  }, []);
  return (
    <section class="home-figure" aria-label="A model with a wrong kernel">
      <div class="fields">
        <Choice
          label="Break the model with a known bug"
          value={bug}
          of={BUGS.map(([id]) => id)}
          onChange={(id) => {
            setBug(id);
            setAsked(isBundled ? asked + 1 : 0);
          }}
        />
        <Choice
          label="Model"
          value={model}
          of={Object.entries(MODELS).map(([id, { words }]) => [id as keyof typeof MODELS, words] as const)}
          onChange={(id) => {
            setModel(id);
            setAsked(0);
          }}
        />
        <Slider label="Drag the position:" value={at} min={0} max={LAST} onInput={setPosition} />
      </div>
      <p class="home-does">
        {DOES.get(bug)} <a href={`${BASE}museum/${bug}/`}>All about it</a>
      </p>
      <TwoTexts
        key={isBundled ? model : `${model} ${bug}`}
        bug={bug}
        asked={asked}
        {...(isBundled ? { before: bug === FIRST_BUG ? [RIGHT, WRONG] : [RIGHT, ''] } : { model: SMOLLM2 })}
        onAsk={() => setAsked(asked + 1)}
        right={<PairDials x={X} position={at} pairing="half" />}
        wrong={<WrongDials bug={bug} position={at} />}
      />
      <p class="muted">
        {isBundled ? <a href={`${BASE}docs/marline/`}>marline</a> : 'SmolLM2'}, a model of {MODELS[model].weights}{' '}
        weights, continues the same words greedily, and only the kernel of RoPE differs. {BUGS.length} of the{' '}
        {KNOWN_BUGS} known bugs can show in marline, and are offered. The dials are the pairs of one head of {HEAD_DIM}{' '}
        dimensions. <a href={`${BASE}learn/`}>Learn how RoPE works</a>, or{' '}
        <a href={`${BASE}learn/#babble`}>See it babble</a>
      </p>
    </section>
  );
}

function Home() {
  return (
    <>
      <Broken />
      <h2>Where to begin</h2>
      <p>
        Nothing is published yet: the commands and imports below need an{' '}
        <a href={`${BASE}docs/readme/#install`}>install from a clone</a>.
      </p>
      <div class="grid home-doors">
        <section class="card">
          <h2>You port a kernel</h2>
          <p>
            Test vectors that tell the dialects apart, a program to paste your kernel into, and a diagnosis that names
            the bug.
          </p>
          <Code text={VERIFY} label="Commands for kernel engineers" />
          <div class="actions">
            <a class="button primary" href={`${BASE}diagnose/`}>
              Diagnose a kernel
            </a>
            <a class="button" href={`${BASE}write/`}>
              Write one here
            </a>
            <a class="button" href={`${BASE}museum/`}>
              See known bugs
            </a>
            <a class="button" href={`${BASE}aicore/`}>
              See an NPU's timeline
            </a>
          </div>
        </section>
        <section class="card">
          <h2>You convert models</h2>
          <p>What RoPE a config.json or a GGUF really has, layer by layer, and the same in the words of every peer.</p>
          <Code text={CONVERT} label="Commands for people who convert models" />
          <div class="actions">
            <a class="button primary" href={`${BASE}explore/`}>
              Explore models
            </a>
            <a class="button" href={`${BASE}explore/?tab=compare`}>
              Compare two models
            </a>
          </div>
        </section>
        <section class="card">
          <h2>You write JavaScript</h2>
          <p>The operators without a dependency, and a decoder on top of them, in Node and in pages.</p>
          <Code text={USE} label="Code for JavaScript developers" />
          <div class="actions">
            <a class="button primary" href={`${BASE}generate/`}>
              Run a model here
            </a>
            <a class="button" href={`${BASE}check/`}>
              Check this browser
            </a>
          </div>
        </section>
      </div>
      <dl class="home-facts">
        <div>
          <dt>
            test cases: results of {BY_PEERS} are from the peers' own programs, of {BY_FORMULAS} from their formulas in
            float64, of the others from our reference. GPUs have no f64, and leave those cases out
          </dt>
          <dd>{CASES}</dd>
        </div>
        <div>
          <dt>dialects: {DIALECTS.join(', ')}</dt>
          <dd>{DIALECTS.length}</dd>
        </div>
        <div>
          <dt>known wrong kernels that the diagnosis tells by name</dt>
          <dd>{KNOWN_BUGS}</dd>
        </div>
        <div>
          <dt>dependencies of the package with the operators</dt>
          <dd>{DEPENDENCIES}</dd>
        </div>
      </dl>
    </>
  );
}

export default draw(<Home />);
