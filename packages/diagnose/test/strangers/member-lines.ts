/** Checks sentences on what single dimensions of y are made of, against the kernel's own output. @module */
import { tensorFrom } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import { type Aspect, type Call, exact, normedInput, type Rotation } from './kernel.js';

/** A sentence, what it is about, and why it is not true. */
export type MemberLine = readonly [
  RegExp,
  readonly Aspect[],
  (parts: string[], scene: MemberScene) => string | undefined,
];

interface MemberScene {
  readonly call: Call;
  readonly asked: Rotation;
}

/** x of the two dimensions of a pair, cos, sin, the sign of the sin term, x of the dimension itself. */
interface At {
  readonly x: (i: number) => number;
  readonly cos: (j: number) => number;
  readonly sin: (j: number) => number;
  readonly pair: number;
  readonly own: number;
  readonly other: number;
}

const TERMS: Readonly<Record<string, (at: At) => number>> = {
  'as expected': ({ x, cos, sin, pair, own, other }) => x(own) * cos(pair) + x(other) * sin(pair),
  'x, not rotated': ({ x, own }) => x(own),
  'x × cos without the sin term': ({ x, cos, pair, own }) => x(own) * cos(pair),
  'the sin term without x × cos': ({ x, sin, pair, other }) => x(other) * sin(pair),
  'rotated with the opposite sign of the sin term': ({ x, cos, sin, pair, own, other }) =>
    x(own) * cos(pair) - x(other) * sin(pair),
  'rotated with the opposite sign of x × cos': ({ x, cos, sin, pair, own, other }) =>
    x(other) * sin(pair) - x(own) * cos(pair),
  'the expected values × −1': ({ x, cos, sin, pair, own, other }) => -x(own) * cos(pair) - x(other) * sin(pair),
  '0': () => 0,
};

/** Why a dimension does not hold what `of` gives, in some row. */
function unlike(dim: number, of: (at: At) => number, { call, asked }: MemberScene, axis?: number): string | undefined {
  const x = normedInput(call);
  const gain = typeof asked.gain === 'number' ? asked.gain : asked.gain[0];
  const pair = asked.pairs.findIndex(({ write }) => write.includes(dim));
  if (pair < 0) return `dimension ${dim} is in no pair`;
  const { read, write } = asked.pairs[pair]!;
  const which = write.indexOf(dim);
  for (let batch = 0; batch < call.batch; batch++)
    for (let seq = 0; seq < call.seq; seq++)
      for (let head = 0; head < call.heads; head++) {
        const from = call.at(batch, seq, head);
        const angle = (j: number): number => {
          const given = call.position(batch, seq, axis ?? asked.axisOfPair?.[j] ?? 0);
          return asked.position(given, { batch, seq, head }) * asked.frequency[j]!;
        };
        const value = of({
          x: (i) => x[from + i]!,
          cos: (j) => gain * Math.cos(angle(j)),
          sin: (j) => gain * (which === 0 ? -1 : 1) * Math.sin(angle(j)),
          pair,
          own: read[which]!,
          other: read[1 - which]!,
        });
        // Angles in f32 and arithmetic in the dtype.
        const slack = 16 * UNIT_ROUNDOFF[call.dtype] + 2 ** -20 * (1 + Math.abs(angle(pair)));
        if (!(Math.abs(call.y[from + dim]! - value) <= slack * 8)) return `dimension ${dim} holds something else`;
      }
  return undefined;
}

function numbers(text: string): number[] {
  return text.split(', ').flatMap((part) => {
    const [from, to = from] = part.split('-').map(Number) as [number, number?];
    return Array.from({ length: to! - from + 1 }, (_what, n) => from + n);
  });
}

const expected = TERMS['as expected']!;

const near = (a: number, b: number): boolean => Math.abs(a - b) <= 2e-3 * Math.abs(b) + 1e-6;

/** Which element is not what a function makes of the right one. */
function otherwise({ call, asked }: MemberScene, of: (value: number) => number): string | undefined {
  const off = exact(call, asked).findIndex((value, n) => {
    return Math.abs(call.y[n]! - of(value)) > 16 * UNIT_ROUNDOFF[call.dtype] * (1 + Math.abs(value)) + 1e-4;
  });
  return off < 0 ? undefined : `element ${off} is not`;
}

export const MEMBER_LINES: readonly MemberLine[] = [
  [
    /^Dimensions ([\d, -]+), the (first|second) members of the pairs, are (.*)\.$/,
    ['elements'],
    ([dims, which, words], scene) => {
      const member = which === 'first' ? 0 : 1;
      const wrong = scene.asked.pairs.some(({ write }) => !numbers(dims!).includes(write[member]));
      if (wrong) return 'those are others';
      const readings = words!.split(', or ').map((one) => TERMS[one]);
      if (readings.includes(undefined)) return `"${words}" is not understood`;
      const whys = readings.map((of) => numbers(dims!).map((dim) => unlike(dim, of!, scene)));
      return whys.some((why) => why.every((one) => one === undefined)) ? undefined : whys[0]!.find(Boolean);
    },
  ],
  [
    /^Dimensions ([\d, -]+) should be copies of x(?: after the norm)? and are not; dimensions ([\d, -]+) are as expected\.$/,
    ['elements', 'dimensions'],
    ([others, turned], scene) => {
      const { x, y, headDim } = scene.call;
      const copied = numbers(others!).find((i) => x.every((value, n) => n % headDim !== i || value === y[n]));
      if (copied !== undefined) return `dimension ${copied} is x`;
      return numbers(turned!)
        .map((dim) => unlike(dim, expected, scene))
        .find(Boolean);
    },
  ],
  [
    /^Dimension i of every head holds the expected value of dimension i ([−+]) (\d+), where there is one\.$/,
    ['elements'],
    ([sign, far], { call, asked }) => {
      const right = exact(call, asked);
      const by = Number(far) * (sign === '−' ? 1 : -1);
      const off = call.y.findIndex((value, n) => {
        const from = (n % call.headDim) - by;
        return from >= 0 && from < call.headDim && Math.abs(value - right[n - by]!) > 1e-3;
      });
      return off < 0 ? undefined : `element ${off} does not`;
    },
  ],
  [
    /^y is cut off (?:below (-?[\d.e-]+))?(?: and )?(?:above (-?[\d.e-]+))?: (\d+) elements that should lie beyond are at the limit; the others are right\.$/,
    ['elements'],
    ([low = '-Infinity', high = 'Infinity', count], { call, asked }) => {
      const right = exact(call, asked);
      const [least, most] = [Number(low), Number(high)];
      const cut = right.filter((value) => value < least || value > most).length;
      const off = call.y.findIndex((value, n) => Math.abs(value - Math.min(most, Math.max(least, right[n]!))) > 2e-2);
      return off >= 0 ? `element ${off} is not` : cut === Number(count) ? undefined : `${cut} are`;
    },
  ],
  [
    /^y is ([\d.]+) · tanh\(right result \/ ([\d.]+)\), a soft cap\.$/,
    ['elements'],
    ([cap, same], scene) =>
      cap === same ? otherwise(scene, (value) => Number(cap) * Math.tanh(value / Number(cap))) : 'they are two',
  ],
  [
    /^y has the right results in (f16|bf16), whose bits are read as (f16|bf16)\.$/,
    ['elements'],
    ([from, to], { call, asked }) => {
      const bits = tensorFrom([...call.y], { dtype: to as 'f16' }).storage.host as Uint16Array;
      const read = tensorFrom(bits, { dtype: from as 'f16' }).readNumbers() as Float64Array;
      const off = exact(call, asked).findIndex(
        (value, n) => Math.abs(value - read[n]!) > 2e-3 * Math.abs(value) + 1e-3,
      );
      return off < 0 ? undefined : `element ${off} is not`;
    },
  ],
  [
    /^Each element of y is one function of the right result, which (rises|falls): (.*)\.$/,
    ['elements'],
    ([way, shown], { call, asked }) => {
      const points = Array.from(exact(call, asked), (value, n): [number, number] => [value, call.y[n]!]);
      points.sort(([a], [b]) => a - b);
      const sign = way === 'rises' ? 1 : -1;
      const slack = (value: number): number => 8 * UNIT_ROUNDOFF[call.dtype] * (1 + Math.abs(value));
      let most = -Infinity;
      for (const [value, y] of points) {
        // Neighbours within the noise of f32 may be in either order.
        if (sign * y < most - 1e-2 - slack(y)) return `at ${value} it does not`;
        most = Math.max(most, sign * y);
      }
      for (const [, to, from] of shown!.matchAll(/(-?[\d.e-]+) for (-?[\d.e-]+)/g))
        if (!points.some(([a, b]) => near(a, Number(from)) && near(b, Number(to)))) return `no element is ${to}`;
      return undefined;
    },
  ],
  [
    /^Each row of y is the right row times a Hadamard matrix, whose elements are ±1\/√(\d+)\.$/,
    ['elements'],
    ([size], { call, asked }) => {
      const [n, right] = [Number(size), exact(call, asked)];
      const odd = (bits: number): boolean => bits.toString(2).replaceAll('0', '').length % 2 === 1;
      const off = call.y.findIndex((value, at) => {
        const row = right.subarray(at - (at % n), at - (at % n) + n);
        const sum = row.reduce((all, one, k) => all + (odd(k & (at % n)) ? -one : one), 0);
        return Math.abs(value - sum / Math.sqrt(n)) > 64 * UNIT_ROUNDOFF[call.dtype] + 1e-3;
      });
      return n === call.headDim && off < 0 ? undefined : `element ${off} is not`;
    },
  ],
  [
    /^The cosine terms are right; the sine terms take x from other places: (.*)\.$/,
    ['elements'],
    ([list], scene) =>
      list!
        .split('; ')
        .flatMap((part) => {
          const [, dims, far, way, beyond] =
            /^dimensions ([\d, -]+) that (\d+) places (on|back)(, in the (?:next head|head before))?$/.exec(part)!;
          const by = Number(far) * (way === 'on' ? 1 : -1);
          return numbers(dims!).map((dim) => {
            const isBeyond = dim + by >= scene.call.headDim || dim + by < 0;
            if (isBeyond !== (beyond !== undefined)) return `dimension ${dim} takes that of another head`;
            // x beyond the tensor is not known.
            return unlike(dim, ({ x, cos, sin, pair, own }) => x(own) * cos(pair) + x(dim + by) * sin(pair), scene);
          });
        })
        .find(Boolean),
  ],
  [
    /^Tiles of (\d+) tokens and \d+ dimensions are transposed(?:, of the first \d+ tokens)?: token a of a tile has dimension b of token b, and the reverse\.$/,
    ['elements'],
    ([text], { call, asked }) => {
      const [size, right] = [Number(text), exact(call, asked)];
      for (let b = 0; b < call.batch; b++)
        for (let s = 0; s < call.seq - (call.seq % size); s++)
          for (let h = 0; h < call.heads; h++)
            for (let i = 0; i < call.headDim; i++) {
              const from = call.at(b, s - (s % size) + (i % size), h) + i - (i % size) + (s % size);
              if (Math.abs(call.y[call.at(b, s, h) + i]! - right[from]!) > 16 * UNIT_ROUNDOFF[call.dtype] * 8 + 1e-3)
                return `token ${s}, dimension ${i} is not`;
            }
      return undefined;
    },
  ],
  [
    /^([\d.]+) % of the elements are 0, in no order, and the others are the right results × ([\d.]+), as by dropout\.$/,
    ['elements', 'magnitude'],
    ([share, factor], { call, asked }) => {
      const right = exact(call, asked);
      const lost = call.y.filter((value, n) => value === 0 && Math.abs(right[n]!) > 1e-3).length / call.y.length;
      if (Math.abs((100 * lost) / Number(share) - 1) > 0.1) return `${lost} are 0`;
      const off = call.y.findIndex(
        (value, n) =>
          value !== 0 && Math.abs(value - Number(factor) * right[n]!) > 32 * UNIT_ROUNDOFF[call.dtype] + 1e-2,
      );
      return off < 0 ? undefined : `element ${off} is not`;
    },
  ],
  [
    /^In pairs? ([\d, -]+), cos is 1 and sin is the angle, as for small angles; all other pairs are right\.$/,
    ['elements'],
    ([list], scene) => {
      const small = numbers(list!);
      const bad = turnsUsed(scene).find(({ pair, whole, cos, sin }) => {
        const [c, s] = small.includes(pair) ? [1, whole] : [Math.cos(whole), Math.sin(whole)];
        return Math.hypot(cos - c, sin - s) > 1e-2 + 1e-3 * Math.abs(whole);
      });
      return bad && `pair ${bad.pair} has not`;
    },
  ],
  [
    /^cos and sin are the means of those of the position and of the one (before|after) it, as where a texture is read half a texel off\.$/,
    ['elements', 'magnitude'],
    ([way], scene) => {
      const bad = turnsUsed(scene).find(({ pair, whole, cos, sin }) => {
        const step = scene.asked.frequency[pair]! * (way === 'before' ? -1 : 1);
        const other = whole === 0 && step < 0 ? 0 : whole + step;
        const [c, s] = [(Math.cos(whole) + Math.cos(other)) / 2, (Math.sin(whole) + Math.sin(other)) / 2];
        return Math.hypot(cos - c, sin - s) > 1e-2;
      });
      return bad && `pair ${bad.pair} has not`;
    },
  ],
  [
    /^Each wrong pair is turned further by an angle of its own, the same in every token: (.*?)(?:, …)? radians(?:; those of pairs? ([\d, -]+) are right within the noise that is allowed for)?\.$/,
    ['elements'],
    ([shown, rest], scene) => {
      const said = new Map(
        [...shown!.matchAll(/pair (\d+) by (-?[\d.e-]+)/g)].map(([, j, by]) => [Number(j), Number(by)]),
      );
      for (const j of rest === undefined ? [] : numbers(rest)) said.set(j, 0);
      const bad = turnsUsed(scene).find(({ pair, whole, cos, sin }) => {
        const by = said.get(pair);
        if (by === undefined) return false;
        const off = Math.atan2(sin, cos) - whole - by;
        return Math.abs(off - 2 * Math.PI * Math.round(off / (2 * Math.PI))) > 5e-2;
      });
      return bad && `pair ${bad.pair} is not`;
    },
  ],
  [
    /^cos and sin are one function of the right ones, which (rises|falls): (.*)\.$/,
    ['elements', 'precision'],
    ([way], scene) => {
      const points = turnsUsed(scene).flatMap(({ whole, cos, sin }): [number, number][] => [
        [Math.cos(whole), cos],
        [Math.sin(whole), sin],
      ]);
      points.sort(([a], [b]) => a - b);
      let most = -Infinity;
      for (const [right, used] of points) {
        const value = way === 'rises' ? used : -used;
        if (value < most - 2e-2) return `at ${right} it does not`;
        most = Math.max(most, value);
      }
      return undefined;
    },
  ],
  [
    /^Angles are off by (-?[\d.e-]+) for each whole turn in them, as where ([\d.]+) is taken for 2π\.$/,
    ['elements', 'precision', 'frequencies'],
    ([off, turn], scene) => {
      if (Math.abs(2 * Math.PI - Number(turn) - Number(off)) > 0.01 * Math.abs(Number(off))) return 'they are two';
      const bad = turnsUsed(scene).filter(({ whole, cos, sin }) => {
        const counts = [Math.floor(whole / (2 * Math.PI)), Math.ceil(whole / (2 * Math.PI))];
        return counts.every((count) => {
          const error = Math.atan2(sin, cos) - (whole - count * Number(turn));
          return Math.abs(error - 2 * Math.PI * Math.round(error / (2 * Math.PI))) > 1e-2 + 1e-6 * Math.abs(whole);
        });
      });
      return bad.length === 0 ? undefined : `${bad.length} are off otherwise`;
    },
  ],
  [
    /^Errors grow with the position: at positions up to (\d+) half of the rows are off by at most ([\d.e-]+) of their length, from (\d+) on half of them by ([\d.e-]+) or more\.$/,
    ['elements'],
    ([early, low, late, high], { call, asked }) => {
      const right = exact(call, asked);
      const errors: { position: number; error: number }[] = [];
      for (let r = 0; r < right.length / call.headDim; r++) {
        const token = Math.floor(r / call.heads);
        const of = (values: Float64Array): Float64Array => values.subarray(r * call.headDim, (r + 1) * call.headDim);
        const off = Math.hypot(...of(call.y).map((value, i) => value - of(right)[i]!));
        const position = Math.abs(call.position(Math.floor(token / call.seq), token % call.seq, 0));
        errors.push({ position, error: off / Math.hypot(...of(right)) });
      }
      const half = (some: typeof errors, is: (error: number) => boolean): boolean =>
        2.5 * some.filter(({ error }) => is(error)).length >= some.length;
      const [first, last] = [
        errors.filter(({ position }) => position <= Number(early)),
        errors.filter(({ position }) => position >= Number(late)),
      ];
      const isSo =
        half(first, (error) => error <= 1.1 * Number(low)) && half(last, (error) => error >= 0.9 * Number(high));
      return isSo ? undefined : 'they do not';
    },
  ],
  [
    /^Each head of y has at most (255|16|15) values, as int[48] does, rounded with its own scale and multiplied by (?:another|that of (.*))\.$/,
    ['elements'],
    ([count, whose], { call, asked }) => {
      const { headDim, heads, seq } = call;
      const right = exact(call, asked);
      const levels = { 255: 127, 16: 8, 15: 7 }[count as '255' | '16' | '15'];
      const head = (values: Float64Array, r: number) => values.subarray(r * headDim, (r + 1) * headDim);
      const scale = (values: Float64Array, r: number): number =>
        head(values, r).reduce((most, one) => Math.max(most, Math.abs(one)), 0) / levels;
      const [, by] = /^head \(h \+ (\d+)\)/.exec(whose ?? '') ?? [];
      const from = (r: number): number => {
        if (by) return r - (r % heads) + ((r + Number(by)) % heads);
        const token = Math.floor(r / heads) % seq;
        const moves = { 'head 0': -(r % heads), 'token 0': -heads * token, 'the token before': -heads };
        return r + (moves[whose as keyof typeof moves] ?? heads);
      };
      for (let r = 0; r < call.y.length / headDim; r++) {
        const [own, step] = [scale(right, r), scale(call.y, r)];
        const off = head(call.y, r).some((one, i) => Math.abs(one / step - head(right, r)[i]! / own) > 0.6);
        const other = from(r) >= 0 && from(r) < call.y.length / headDim ? scale(right, from(r)) : step;
        if (off || (whose && Math.abs(step / other - 1) > 2e-3)) return `head ${r} holds something else`;
      }
      return undefined;
    },
  ],
  [
    /^Rows( of each head)? were written (\d+) elements apart and read (\d+) apart(?:, anew every (\d+) rows)?: where both meet, y is as expected\.$/,
    ['elements'],
    ([perHead, ...numbers], { call, asked }) => {
      const [right, count] = [exact(call, asked), call.y.length / call.headDim];
      const [write, read, buffer] = numbers.map((one) => Number(one ?? count)) as [number, number, number];
      const order = Array.from({ length: count }, (_what, r) => r);
      const key = (r: number): number => Math.floor(r / (call.seq * call.heads)) * call.heads + (r % call.heads);
      if (perHead) order.sort((a, b) => key(a) - key(b) || a - b);
      for (let start = 0; start < count; start += buffer) {
        const rows = order.slice(start, start + buffer);
        const held = new Map<number, number>();
        for (const [n, r] of rows.entries())
          for (let i = 0; i < call.headDim; i++) held.set(n * write + i, right[r * call.headDim + i]!);
        for (const [n, r] of rows.entries())
          for (let i = 0; i < call.headDim; i++) {
            const value = held.get(n * read + i) ?? Number.NaN;
            if (Math.abs(call.y[r * call.headDim + i]! - value) > 1e-3) return `row ${r} holds something else`;
          }
      }
      return undefined;
    },
  ],
  [
    /^The members of a pair rotate by different angles: (.*?)(?:, …)?(?:; dimension i by that of pair (?:i|\(i − (\d+)\)) mod (\d+))?\.$/,
    ['elements'],
    ([shown, first, modulo], scene) => {
      const said = [...shown!.matchAll(/dimension (\d+) by that of pair (\d+) instead of \d+/g)].map((one) =>
        one.slice(1).map(Number),
      ) as [number, number][];
      const dims = scene.asked.pairs.flatMap(({ write }) => write);
      const ruled = modulo
        ? dims.map((dim): [number, number] => [dim, (dim - Number(first ?? 0)) % Number(modulo)])
        : [];
      return [...said, ...ruled]
        .map(([dim, of]) => unlike(dim, ({ x, cos, sin, own, other }) => x(own) * cos(of) + x(other) * sin(of), scene))
        .find(Boolean);
    },
  ],
  [
    /^Dimensions of y come from other dimensions of x, \d+ in all: (.*)\.$/,
    ['elements'],
    ([shown], scene) => {
      const is = (dim: number, a: number, b?: number): string | undefined =>
        unlike(dim, ({ x, cos, sin, pair }) => x(a) * cos(pair) + (b === undefined ? 0 : x(b) * sin(pair)), scene);
      const one = [...shown!.matchAll(/dimension (\d+) from x\[(\d+)\] × cos(?: and x\[(\d+)\] × sin| alone)/g)].map(
        ([, dim, a, b]) => is(Number(dim), Number(a), b === undefined ? undefined : Number(b)),
      );
      const RULE =
        /dimension i from x\[i(?: ([+−]) (\d+))?\] × cos(?: and x\[i(?: ([+−]) (\d+))?\] × (sin)| alone) instead of [^;]*?, for i of ([\d, -]+)/g;
      const rules = [...shown!.matchAll(RULE)].flatMap(([, way, far = '0', other, further = '0', hasSin, list]) =>
        list!.split(', ').flatMap((range) => {
          const [from, to = from] = range.split('-').map(Number) as [number, number?];
          return Array.from({ length: to! - from + 1 }, (_what, n) => {
            const at = (sign: string | undefined, by: string): number =>
              from + n + (sign === '−' ? -1 : 1) * Number(by);
            return is(from + n, at(way, far), hasSin ? at(other, further) : undefined);
          });
        }),
      );
      const all = [...one, ...rules];
      return all.length === 0 ? 'its dimensions are not understood' : all.find(Boolean);
    },
  ],
  [
    /^The sin term of dimension i has x\[(?:(\d+) − i|i XOR (\d+)|\(i \+ (\d+)\) mod (\d+))\]: dimension \d+ that of x\[\d+\] instead of x\[\d+\]\.$/,
    ['elements'],
    ([from, mask, by, size], scene) => {
      const partner = (i: number): number =>
        from ? Number(from) - i : mask ? i ^ Number(mask) : (i + Number(by)) % Number(size);
      const dims = scene.asked.pairs.flatMap(({ write }) => write);
      return dims
        .map((dim) =>
          unlike(dim, ({ x, cos, sin, pair, own }) => x(own) * cos(pair) + x(partner(dim)) * sin(pair), scene),
        )
        .find(Boolean);
    },
  ],
  [
    /^Dimensions rotate by the positions of other axes: (.*)\.$/,
    ['axes', 'elements'],
    ([list], scene) =>
      list!
        .split('; ')
        .flatMap((part) => {
          const [, dims, axis] = /^([\d, -]+) by ([thwe]) instead of [thwe]$/.exec(part)!;
          return numbers(dims!).map((dim) => unlike(dim, expected, scene, 'thwe'.indexOf(axis!)));
        })
        .find(Boolean),
  ],
  [
    /^The table of cos and sin has the rows of its positions (\d+) elements apart, and is read as if they were (\d+) apart\.$/,
    ['elements'],
    (numbers, { call, asked }) => {
      const [lie, read] = numbers.map(Number) as [number, number];
      const x = normedInput(call);
      const gain = typeof asked.gain === 'number' ? asked.gain : asked.gain[0];
      for (let r = 0; r < call.y.length / call.headDim; r++) {
        const token = Math.floor(r / call.heads);
        const position = call.position(Math.floor(token / call.seq), token % call.seq);
        for (const [j, pair] of asked.pairs.entries()) {
          const place = position * read + j;
          const [row, from] = [Math.floor(place / lie), place % lie];
          if (from >= asked.pairs.length) continue;
          const angle = row * asked.frequency[from]!;
          const [x0, x1] = pair.read.map((i) => x[r * call.headDim + i]!) as [number, number];
          const [y0, y1] = pair.write.map((i) => call.y[r * call.headDim + i]!) as [number, number];
          const [c, s] = [gain * Math.cos(angle), gain * Math.sin(angle)];
          const slack = (64 * UNIT_ROUNDOFF[call.dtype] + 2 ** -18 * (1 + Math.abs(angle))) * (Math.hypot(x0, x1) + 1);
          if (Math.hypot(y0 - (x0 * c - x1 * s), y1 - (x0 * s + x1 * c)) > slack) return `row ${r}, pair ${j} does not`;
        }
      }
      return undefined;
    },
  ],
  [
    /^The angles are off by ([\d.e-]+) of themselves, as where ([\d.]+) is taken for 2π\.$/,
    ['elements'],
    ([share, turn], scene) => {
      if (Math.abs(Math.abs(Number(turn) / (2 * Math.PI) - 1) - Number(share)) > 0.1 * Number(share))
        return 'they are two';
      const by = 1 - Number(turn) / (2 * Math.PI);
      let [off, left] = [0, 0];
      for (const { whole, cos, sin } of turnsUsed(scene)) {
        const error = Math.atan2(sin, cos) - whole;
        const wrapped = error - 2 * Math.PI * Math.round(error / (2 * Math.PI));
        off += wrapped ** 2;
        left += (wrapped - by * whole) ** 2;
      }
      return left < 0.1 * off ? undefined : 'they are off otherwise';
    },
  ],
  [
    /^The table of cos and sin is read as \[(.*?)\], and it lies as \[(.*?)\](?:, or as .*)?\.$/,
    ['elements'],
    ([read, lies], scene) => {
      const { call, asked } = scene;
      const sizes: Record<string, number> = { token: call.seq, 'cos or sin': 2, pair: asked.pairs.length };
      const table = new Map<number, number>();
      const place = (layout: string, at: Record<string, number>): number =>
        layout.split(', ').reduce((sum, axis) => sum * sizes[axis]! + at[axis]!, 0);
      const each = (visit: (at: Record<'token' | 'pair' | 'cos or sin', number>) => void): void => {
        for (let token = 0; token < call.seq; token++)
          for (let pair = 0; pair < asked.pairs.length; pair++)
            for (const half of [0, 1]) visit({ token, pair, 'cos or sin': half });
      };
      each((at) => {
        const angle = asked.position(call.position(0, at.token), { batch: 0, seq: at.token, head: 0 });
        const wave = at['cos or sin'] === 0 ? Math.cos : Math.sin;
        table.set(place(lies!, at), wave(angle * asked.frequency[at.pair]!));
      });
      let why: string | undefined;
      each((at) => {
        const used = turnsUsed(scene).find(({ token, pair }) => token === at.token && pair === at.pair);
        const is = at['cos or sin'] === 0 ? used?.cos : used?.sin;
        if (is !== undefined && Math.abs(is - table.get(place(read!, at))!) > 0.05)
          why = `token ${at.token} has others`;
      });
      return why;
    },
  ],
  [
    /^y is near the expected values: errors are ([\d.e-]+) of them \(root mean square\)\. Over the rows of a pair they cancel to ([\d.e-]+), as those of many roundings do, or of few bits\.$/,
    ['precision', 'elements'],
    ([share, left], { call, asked }) => {
      const right = exact(call, asked);
      const squares = (values: Float64Array): number => values.reduce((sum, v) => sum + v * v, 0);
      const is = Math.sqrt(squares(call.y.map((v, n) => v - right[n]!)) / squares(right));
      if (Number(left) > 0.5 * Number(share)) return 'they do not cancel';
      return Math.abs(is / Number(share) - 1) < 0.1 ? undefined : `they are ${is}`;
    },
  ],
  [
    /^The expected values are multiplied by ([\d.e+-]+)\.$/,
    ['elements', 'magnitude'],
    ([times], scene) => {
      const dims = scene.asked.pairs.flatMap(({ write }) => write);
      return dims.map((dim) => unlike(dim, (at) => Number(times) * expected(at), scene)).find(Boolean);
    },
  ],
  [
    /^Each dimension of x is multiplied by a factor of its own before it is rotated, from about [\d.]+ to [\d.]+(?:: (\d+) is (added to|taken from) the norm's weight)?\.$/,
    ['elements'],
    ([value, way], scene) => {
      const { norm } = scene.call;
      if (value === undefined || !norm) return 'the checker does not know the factors';
      const more = Number(value) * (way === 'added to' ? 1 : -1);
      const call: Call = { ...scene.call, norm: { ...norm, weight: norm.weight.map((w) => w + more) } };
      const dims = scene.asked.pairs.flatMap(({ write }) => write);
      return dims.map((dim) => unlike(dim, expected, { ...scene, call })).find(Boolean);
    },
  ],
];

/** By pair: how far y / x is from the expected turn at most, as a share of the length and in radians. */
function pairErrors({ call, asked }: MemberScene): { share: number; turn: number; length: number }[] {
  const x = normedInput(call);
  const gain = typeof asked.gain === 'number' ? asked.gain : asked.gain[0];
  return asked.pairs.map(({ read, write }, j) => {
    let [share, turn, length] = [0, 0, 0];
    for (let batch = 0; batch < call.batch; batch++)
      for (let seq = 0; seq < call.seq; seq++)
        for (let head = 0; head < call.heads; head++) {
          const from = call.at(batch, seq, head);
          const angle =
            asked.position(call.position(batch, seq, asked.axisOfPair?.[j] ?? 0), { batch, seq, head }) *
            asked.frequency[j]!;
          const [x0, x1] = read.map((i) => x[from + i]!) as [number, number];
          const [y0, y1] = write.map((i) => call.y[from + i]! / gain) as [number, number];
          const size = Math.hypot(x0, x1);
          if (size < 0.1) continue; // rounding counts for more there
          const [u, v] = [x0 * Math.cos(angle) - x1 * Math.sin(angle), x0 * Math.sin(angle) + x1 * Math.cos(angle)];
          share = Math.max(share, Math.hypot(y0 - u, y1 - v) / size);
          turn = Math.max(turn, Math.abs(Math.atan2(u * y1 - v * y0, u * y0 + v * y1)));
          length = Math.max(length, Math.abs(Math.hypot(y0, y1) / size - 1));
        }
    return { share, turn, length };
  });
}

const fine = ({ call }: MemberScene): number => 64 * Math.max(UNIT_ROUNDOFF[call.dtype], UNIT_ROUNDOFF.f32);

const farPairs = (pairs: string, rest: string | undefined, scene: MemberScene): string | undefined => {
  const errors = pairErrors(scene);
  const reach = Math.max(...scene.call.positions.map(Math.abs));
  // Frequencies may be powers that are multiplied up in f32.
  const slack = (j: number): number =>
    fine(scene) + (8 + 2 * j) * 2 ** -24 * reach * Math.abs(scene.asked.frequency[j]!);
  const off = rest === undefined ? undefined : numbers(rest).find((j) => errors[j]!.share > slack(j));
  if (off !== undefined) return `pair ${off} is not as expected`;
  const right = numbers(pairs).find((j) => errors[j]!.share < UNIT_ROUNDOFF[scene.call.dtype]);
  return right === undefined ? undefined : `pair ${right} is as expected`;
};

/** The largest error of some pairs is what is said, or a little less: rows of small x are not counted here. */
const largest = (said: number, real: number): string | undefined =>
  real <= 1.02 * said && real >= 0.5 * said ? undefined : `it is ${real}`;

export const PAIR_LINES: readonly MemberLine[] = [
  [
    /^x is not rotated in pairs? ([\d, -]+)(?:; those of pairs? ([\d, -]+) are right within the noise that is allowed for)?\.$/,
    ['frequencies', 'positions', 'dimensions'],
    ([pairs, rest], scene) => {
      const x = normedInput(scene.call);
      const { batch, seq, heads, y, at } = scene.call;
      const rows = Array.from({ length: batch * seq * heads }, (_what, r) =>
        at(Math.floor(r / (seq * heads)), Math.floor(r / heads) % seq, r % heads),
      );
      const turned = numbers(pairs!).find((j) => {
        const { read, write } = scene.asked.pairs[j]!;
        return rows.some((from) =>
          [0, 1].some((n) => Math.abs(x[from + read[n]!]! - y[from + write[n]!]!) > fine(scene)),
        );
      });
      return turned === undefined ? farPairs(pairs!, rest, scene) : `pair ${turned} is rotated`;
    },
  ],
  [
    /^The lengths of pairs are right; the angles of pairs? ([\d, -]+) are (?:off by up to ([\d.e-]+) radians|not the expected ones)(?:; those of pairs? ([\d, -]+) are right within the noise that is allowed for)?\.$/,
    ['frequencies', 'positions', 'precision'],
    ([pairs, most, rest], scene) => {
      const errors = pairErrors(scene);
      if (errors.some(({ length }) => length > fine(scene))) return 'lengths change';
      const why = most && largest(Number(most), Math.max(...errors.map(({ turn }) => turn)));
      return why || farPairs(pairs!, rest, scene);
    },
  ],
  [
    /^The results of pairs? ([\d, -]+) are off by up to ([\d.e-]+) of their length(?:; those of pairs? ([\d, -]+) are right within the noise that is allowed for)?\.$/,
    ['precision', 'elements'],
    ([pairs, most, rest], scene) =>
      largest(Number(most), Math.max(...pairErrors(scene).map(({ share }) => share))) || farPairs(pairs!, rest, scene),
  ],
  [
    /^cos and sin are multiples of 1\/(\d+)\.$/,
    ['precision'],
    ([n], scene) => {
      const off = turnsUsed(scene).flatMap(({ cos, sin }) =>
        [cos, sin].map((value) => Math.abs(value * Number(n) - Math.round(value * Number(n)))),
      );
      return off.filter((one) => one > 0.05).length > 0.1 * off.length ? 'they are not' : undefined;
    },
  ],
  [
    /^With (x|cos and sin|x, cos and sin) rounded to (7|10) bits after the leading one, as in .*, (\d+) % of y is given to its last bits\.$/,
    ['precision'],
    ([what, bits, percent], { call, asked }) => {
      const half = (value: number): number => {
        const scale = 2 ** (Number(bits) - Math.floor(Math.log2(Math.abs(value) || 1)));
        return Math.round(value * scale) / scale;
      };
      const x = normedInput(call).map((value) => (what!.startsWith('x') ? half(value) : value));
      const given = asked.pairs.flatMap(({ read, write }, j) =>
        Array.from({ length: call.seq }, (_what, seq) => {
          const from = call.at(0, seq, 0);
          const angle = Math.fround(call.position(0, seq) * Math.fround(asked.frequency[j]!));
          const [c, s] = [Math.cos(angle), Math.sin(angle)].map(what === 'x' ? (value) => value : half) as [
            number,
            number,
          ];
          const value = x[from + read[0]]! * c - x[from + read[1]]! * s;
          return Math.abs(call.y[from + write[0]]! - value) < 1e-6;
        }),
      );
      return given.filter(Boolean).length / given.length > Number(percent) / 100 - 0.05 ? undefined : 'it is not';
    },
  ],
  [
    /^Equal angles have nearly equal errors, as with a table or a polynomial for cos and sin\.$/,
    ['precision'],
    (_parts, scene) => {
      const sorted = turnsUsed(scene).sort((a, b) => a.angle - b.angle);
      const [apart, size] = [[] as number[], [] as number[]];
      for (const [n, one] of sorted.entries()) {
        const next = sorted[n + 1];
        const off = (of: typeof one): number => of.sin - Math.sin(of.angle);
        if (!next || next.angle - one.angle > 1e-3) continue;
        apart.push(Math.abs(off(next) - off(one)));
        size.push(Math.abs(off(one)));
      }
      const middle = (list: number[]): number => list.sort((a, b) => a - b)[list.length >> 1]!;
      return middle(apart) < 0.4 * middle(size) ? undefined : 'they have not';
    },
  ],
];

/** cos and sin that the kernel used, and the angle that was asked for, from 0 to 2π. */
function turnsUsed({ call, asked }: MemberScene) {
  const x = normedInput(call);
  const gain = typeof asked.gain === 'number' ? asked.gain : asked.gain[0];
  const turn = 2 * Math.PI;
  return asked.pairs.flatMap(({ read, write }, j) =>
    Array.from({ length: call.batch * call.seq }, (_what, token) => {
      const [batch, seq] = [Math.floor(token / call.seq), token % call.seq];
      const from = call.at(batch, seq, 0);
      const angle = asked.position(call.position(batch, seq), { batch, seq, head: 0 }) * asked.frequency[j]!;
      const [x0, x1] = read.map((i) => x[from + i]!) as [number, number];
      const [y0, y1] = write.map((i) => call.y[from + i]! / gain) as [number, number];
      const power = x0 * x0 + x1 * x1;
      return {
        token,
        pair: j,
        whole: angle,
        angle: angle - turn * Math.floor(angle / turn),
        cos: (x0 * y0 + x1 * y1) / power,
        sin: (x0 * y1 - x1 * y0) / power,
        power,
      };
    }).filter(({ power }) => power > 0.5),
  );
}
