/** The page Learn explains RoPE in ten minutes with moving figures. @module */
import './learn.css';
import { FIRST_BUG, RIGHT, WRONG } from 'virtual:broken';
import { KNOWN_BUGS } from 'virtual:figures';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type RopeScaling, ropeFrequencies } from 'ropewalk';
import { useAddressNumber } from '../shared/address.js';
import { Chart } from '../shared/chart.js';
import { scrollToHash } from '../shared/hash.js';
import { PairDials } from '../shared/pair-dials.js';
import { rotated } from '../shared/rotate.js';
import { Slider } from '../shared/slider.js';
import { TwoTexts } from '../shared/two-texts.js';
import { BASE } from '../shell/base.js';
import { draw } from '../shell/draw.js';

/** One pair of a query and one of a key. */
const Q = Float64Array.of(0.9, 0.25);
const K = Float64Array.of(0.55, -0.7);

/** Shows that the product of a query pair and a key pair depends only on their distance. */
function Distance() {
  const [m, setM] = useState(9);
  const [n, setN] = useState(6);
  const turn = (x: Float64Array, position: number): Float64Array =>
    rotated(x, position, { pairing: 'half', base: 10000 });
  const [q, k] = [turn(Q, m), turn(K, n)];
  const product = q[0]! * k[0]! + q[1]! * k[1]!;
  const move = (by: number): void => {
    setM(m + by);
    setN(n + by);
  };
  const arrow = (v: Float64Array, name: 'q' | 'k') => (
    <g class={`learn-${name}`}>
      <line x1={0} y1={0} x2={90 * v[0]!} y2={-90 * v[1]!} stroke-width={4} stroke-linecap="round" />
      <circle cx={90 * v[0]!} cy={-90 * v[1]!} r={5} />
      <text x={104 * v[0]!} y={-104 * v[1]! + 4} text-anchor="middle" stroke="none" font-size={13}>
        {name}
      </text>
    </g>
  );
  return (
    <figure>
      <div class="learn-dot">
        <svg
          viewBox="-115 -115 230 230"
          role="img"
          aria-label={`q at position ${m}, k at position ${n}: q·k is ${product.toFixed(4)}`}
        >
          <circle class="learn-face" r={100} />
          {arrow(q, 'q')}
          {arrow(k, 'k')}
        </svg>
        <div>
          <Slider label="Position of q" value={m} min={0} max={60} onInput={setM} />
          <Slider label="Position of k" value={n} min={0} max={60} onInput={setN} />
          <div class="actions">
            <button type="button" disabled={m === 0 || n === 0} onClick={() => move(-1)}>
              Both one back
            </button>
            <button type="button" disabled={m === 60 || n === 60} onClick={() => move(1)}>
              Both one on
            </button>
          </div>
          <p>
            Distance {m - n}: q·k = <strong>{product.toFixed(4)}</strong>
          </p>
        </div>
      </div>
      <figcaption>
        Move both: the arrows turn, and the product stays. Move one: it changes. Attention so sees how far apart two
        tokens are, and not where they are.
      </figcaption>
    </figure>
  );
}

const HEAD = Float64Array.from({ length: 12 }, (_, i) => Math.cos(1.9 * i + 0.3) * (1 - i / 40));

function Pairings() {
  const [position, setPosition] = useState(3);
  return (
    <figure>
      <Slider label="Position" value={position} min={0} max={64} onInput={setPosition} />
      <div class="learn-pairings">
        <div>
          <h3>half</h3>
          <PairDials x={HEAD} position={position} pairing="half" />
        </div>
        <div>
          <h3>interleaved</h3>
          <PairDials x={HEAD} position={position} pairing="interleaved" />
        </div>
      </div>
      <figcaption>
        The bars are the head after its rotation, the lines lead from the two dimensions of a pair to its dial.
        HuggingFace's Llama has half; llama.cpp runs the same model interleaved, with the rows of q and k in another
        order.
      </figcaption>
    </figure>
  );
}

/** Shows the text of the bundled model with the right and with the wrong pairs. */
function Babbling() {
  return (
    <figure>
      <TwoTexts bug={FIRST_BUG} before={[RIGHT, WRONG]} />
      <figcaption>
        The same weights and prompt. The wrong one rotates interleaved pairs with weights that were trained for halves:
        all that differs is which dimensions turn together.
      </figcaption>
    </figure>
  );
}

const tokens = (n: number): string => (n >= 1024 ? `${Math.round(n / 1024)}k` : String(n));

function Wavelengths() {
  const [exponent, setExponent] = useAddressNumber('base', 4, { min: 3, max: 7 });
  const [power, setPower] = useAddressNumber('context', 13, { min: 8, max: 20 });
  const base = Math.round(10 ** exponent);
  const context = 2 ** Math.trunc(power);
  const { x, waves, line, never } = useMemo(() => {
    const { invFreq } = ropeFrequencies({ rotaryDim: 128, base });
    const wavelengths = Array.from(invFreq, (f) => (2 * Math.PI) / f);
    return {
      x: wavelengths.map((_, j) => j),
      waves: wavelengths,
      line: wavelengths.map(() => context),
      never: wavelengths.filter((w) => w > context).length,
    };
  }, [base, context]);
  return (
    <figure>
      <div class="fields">
        <Slider
          label="Base"
          value={exponent}
          min={3}
          max={7}
          step={0.1}
          words={base.toLocaleString('en')}
          onInput={setExponent}
        />
        <Slider label="Context" value={power} min={8} max={20} words={`${tokens(context)} tokens`} onInput={setPower} />
      </div>
      <Chart
        x={x}
        series={[
          { label: 'tokens for a whole turn', values: waves },
          { label: 'context', values: line, dashed: true },
        ]}
        label={`Wavelength of each of 64 pairs for base ${base}: from 6.3 tokens to ${tokens(waves.at(-1)!)}`}
        xLabel="pair"
        yLabel="tokens"
        logY
      />
      <figcaption>
        A head of 128 dimensions has 64 pairs. {never} of them never make a whole turn in {tokens(context)} tokens: a
        model that is trained on so many has not seen the other angles, and does not know what to do with them in a
        longer text.
      </figcaption>
    </figure>
  );
}

const ORIGINAL = 4096;

function Scalings() {
  const [factor, setFactor] = useAddressNumber('factor', 8, { min: 1, max: 32 });
  const { x, series } = useMemo(() => {
    const of = (scaling?: RopeScaling): Float64Array =>
      ropeFrequencies({ rotaryDim: 128, base: 10000, ...(scaling && { scaling }) }).invFreq;
    const plain = of();
    const ratio = (scaling: RopeScaling): number[] => Array.from(of(scaling), (f, j) => f / plain[j]!);
    return {
      x: Array.from(plain, (_, j) => j),
      series: [
        { label: 'linear', values: ratio({ kind: 'linear', factor }) },
        {
          label: 'dynamic NTK',
          values: ratio({ kind: 'dynamicNtk', factor, originalContext: ORIGINAL, context: ORIGINAL * factor }),
        },
        { label: 'YaRN', values: ratio({ kind: 'yarn', factor, originalContext: ORIGINAL }) },
        {
          label: 'llama3',
          values: ratio({ kind: 'llama3', factor, lowFreqFactor: 1, highFreqFactor: 4, originalContext: ORIGINAL }),
        },
      ],
    };
  }, [factor]);
  return (
    <figure>
      <Slider
        label="Factor"
        value={factor}
        min={1}
        max={32}
        words={`${factor}, for ${tokens(ORIGINAL * factor)} tokens`}
        onInput={setFactor}
      />
      <Chart
        x={x}
        series={series}
        label={`What linear, dynamic NTK, YaRN and llama3 scaling by ${factor} leave of each pair's frequency`}
        xLabel="pair"
        yLabel="of its frequency"
      />
      <figcaption>
        Linear scaling slows every pair alike, and the fast ones then confuse neighbours. Dynamic NTK raises the base:
        the first pair keeps its speed, and each next one loses more. YaRN and llama3 keep the fast pairs as they are,
        slow only those that would meet new angles, and have a ramp between. YaRN also makes cos and sin a little
        larger. longrope has a factor for each pair, found by search: see it at{' '}
        <a href={`${BASE}explore/?model=microsoft/Phi-3.5-mini-instruct`}>a model that has it</a>.
      </figcaption>
    </figure>
  );
}

function Learn() {
  useEffect(scrollToHash, []);
  return (
    <article class="learn">
      <h2>Why turn anything</h2>
      <p>
        Attention multiplies a query with each key: q·k. Take two numbers of q and the same two of k as arrows, and turn
        each arrow by its token's position. A product of two arrows depends on the angle between them, so only the
        difference of the positions is left in it.
      </p>
      <Distance />
      <h2>Why pairs, and which</h2>
      <p>
        An arrow needs two numbers, so the dimensions of a head are taken in pairs. The first pair turns fast, each next
        one more slowly: <code>angle = position · base^(−2j / dim)</code>. Which two dimensions make a pair is free, and
        two ways are in use.
      </p>
      <Pairings />
      <h2 id="babble">The wrong partners</h2>
      <p>
        A trained model has learned one of the two. Nothing in the file's shapes says which, and with the other one
        every number is still finite, every length still right. The model just talks nonsense.
      </p>
      <Babbling />
      <h2>How slow is slow</h2>
      <p>
        The base sets how fast the pairs fall behind each other. A pair with a wavelength far beyond the context hardly
        moves: it carries meaning and no order.
      </p>
      <Wavelengths />
      <h2>Longer texts than in training: scaling</h2>
      <p>
        To read further than it was trained, a model must not meet angles that it has never seen. So pairs are slowed
        down. How is where models differ, and where most of their config files' words come from.
      </p>
      <Scalings />
      <h2>Where {KNOWN_BUGS} bugs come from</h2>
      <p>
        From all of the above: the other partners, an exponent over the wrong size, a scaling that is left out, a
        position that begins at one, a factor that belongs to cos and sin and is given to the frequency, angles in 16
        bits. Each is a line of somebody's code with a thread in a public tracker, and most look right at position 0.
      </p>
      <div class="actions">
        <a class="button primary" href={`${BASE}museum/`}>
          See them all
        </a>
        <a class="button" href={`${BASE}diagnose/?demo=1`}>
          Find one in a kernel
        </a>
      </div>
    </article>
  );
}

export default draw(<Learn />);
