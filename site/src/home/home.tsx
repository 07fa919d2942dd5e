/** The page Home explains Ropewalk, shows a head that turns, and has a link for each kind of user. @module */
import '../shell/shell.js';
import './home.css';
import { BY_FORMULAS, BY_PEERS, CASES, DEPENDENCIES, KNOWN_BUGS } from 'virtual:figures';
import { render } from 'preact';
import { useAddressNumber } from '../shared/address.js';
import { Code } from '../shared/copy.js';
import { PairDials } from '../shared/pair-dials.js';
import { Slider } from '../shared/slider.js';
import { BASE } from '../shell/base.js';

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

function Home() {
  const [position, setPosition] = useAddressNumber('position', 7, { min: 0, max: LAST });
  const at = Math.trunc(position);
  return (
    <>
      <div class="home-hero">
        <h1>Rotary position embedding, exact in every dialect</h1>
        <p class="lead">
          Ropewalk has the operators of a decoder-only transformer in TypeScript, RoPE first: checked against a float64
          reference and the peers' own vectors, on CPU and GPU, as ONNX graphs and through WebNN for NPUs, with tools
          that say what a kernel does wrong.
        </p>
      </div>
      <section class="home-figure" aria-label="A head that turns">
        <Slider label="Drag the position:" value={at} min={0} max={LAST} onInput={setPosition} />
        <div class="home-pairings">
          <div>
            <h2>half: dimensions j and j + {HEAD_DIM / 2} turn together</h2>
            <PairDials x={X} position={at} pairing="half" />
          </div>
          <div>
            <h2>interleaved: dimensions 2j and 2j + 1 turn together</h2>
            <PairDials x={X} position={at} pairing="interleaved" />
          </div>
        </div>
        <p class="muted">
          One head of {HEAD_DIM} dimensions. The first pair turns by a radian a position, each next one more slowly. The
          same head, the same angles; only the partners differ, and a model that is run with the other ones writes
          nonsense. <a href={`${BASE}learn/#babble`}>See it babble</a>
        </p>
      </section>
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
            <a class="button primary" href={`${BASE}diagnose/?demo=1`}>
              Diagnose a kernel
            </a>
            <a class="button" href={`${BASE}museum/`}>
              See known bugs
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
            <a class="button" href={`${BASE}aicore/`}>
              See an NPU's timeline
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

render(<Home />, document.querySelector('#main')!);
