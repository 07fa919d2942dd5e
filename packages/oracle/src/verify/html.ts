/**
 * Results of verify as one HTML file that needs nothing else: no script, no font, no network. For tickets and for
 * people.
 *
 * @module
 */
import { escapeMarkup, reading, readList } from 'ropewalk/internal';
import type { ErrorMap, TensorReport, VerifyResult } from './judge.js';
import {
  countVerified,
  elementValue,
  gainText,
  type ReportTitle,
  ratioText,
  readTitle,
  shortNumber,
  verifySummary,
  wrongTable,
} from './report.js';

/** The largest |error| / bound of each shade: blue is within the bound, orange and red are outside. */
const SHADES: readonly { readonly upTo: number; readonly label: string }[] = [
  { upTo: 0, label: 'exact' },
  { upTo: 0.01, label: '≤ 0.01' },
  { upTo: 0.1, label: '≤ 0.1' },
  { upTo: 0.5, label: '≤ 0.5' },
  { upTo: 1, label: '≤ 1' },
  { upTo: 10, label: '≤ 10' },
  { upTo: 1000, label: '≤ 1000' },
  { upTo: Number.MAX_VALUE, label: '> 1000' },
  { upTo: Number.POSITIVE_INFINITY, label: 'NaN, infinite, or none allowed' },
];

const STYLE = `
:root{color-scheme:light dark;--ink:#1c2430;--dim:#5b6675;--page:#fbfbf9;--card:#fff;--line:#d9dde3;--good:#1a6b45;--bad:#b3261e;--code:#f1f2ef;
--s0:#f3f5f7;--s1:#dbe9f6;--s2:#b3d3ec;--s3:#74b0dc;--s4:#2f7fbd;--s5:#fdc28c;--s6:#f98b3c;--s7:#d44a12;--s8:#7d1d0c}
@media (prefers-color-scheme:dark){:root{--ink:#e5e9ef;--dim:#9aa6b5;--page:#14181d;--card:#1b2027;--line:#333b46;--good:#6fcf97;--bad:#ff8a7a;--code:#242a33;
--s0:#232a33;--s1:#20394f;--s2:#24527a;--s3:#2e75ad;--s4:#6cb4e8;--s5:#7a4a1c;--s6:#c26a1d;--s7:#f58b3f;--s8:#ffd0b0}}
*{box-sizing:border-box}
body{margin:0;padding:2rem clamp(1rem,4vw,3rem) 4rem;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:80rem;margin:0 auto}
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.15rem;margin:2.5rem 0 .75rem}h3{font-size:1rem;margin:0 0 .25rem}
p{margin:.25rem 0}.dim{color:var(--dim)}
.verdict{display:inline-block;margin:.75rem 0 0;padding:.35rem .8rem;border-radius:.4rem;border:1px solid currentColor;font-weight:600}
.ok{color:var(--good)}.fail{color:var(--bad)}.skip{color:var(--dim)}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
.cases{width:100%}
th,td{padding:.3rem .55rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;color:var(--dim);text-align:right}
.l,th.l{text-align:left}td.id{white-space:normal;overflow-wrap:anywhere;min-width:12rem}
a{color:inherit}
details{background:var(--card);border:1px solid var(--line);border-radius:.5rem;margin:.75rem 0}
summary{cursor:pointer;padding:.6rem 1rem;overflow-wrap:anywhere}
details>div{padding:0 1rem 1rem}
code,pre{font:.85rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--code);border-radius:.3rem}
code{padding:.1rem .3rem}pre{padding:.6rem .8rem;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0}
section{margin-top:1rem}
svg{display:block;max-width:100%;height:auto;margin:.25rem 0}
svg text{fill:var(--dim);font:11px system-ui,-apple-system,"Segoe UI",sans-serif}
${SHADES.map((_, n) => `.s${n}{fill:var(--s${n});background:var(--s${n})}`).join('')}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.3rem 0 0;padding:0;list-style:none;font-size:.85rem}
.legend i{display:inline-block;width:1em;height:1em;border-radius:2px;border:1px solid var(--line);vertical-align:-.12em;margin-right:.35em}
@media print{body{background:#fff}details{break-inside:avoid}}
`;

/**
 * Writes the report.
 *
 * @param title - what was compared
 * @param results - in order
 * @returns a whole HTML document: the cases that failed, each with its first wrong elements and, for RoPE, its error
 *   map; a table of all cases; the others, folded
 */
export function verifyToHtml(title: ReportTitle, results: readonly VerifyResult[]): string {
  const all = Array.from(readList(results, 'results'));
  return reading('report', () => htmlOf(readTitle(title), all));
}

function htmlOf(title: ReportTitle, results: readonly VerifyResult[]): string {
  const counts = countVerified(results);
  const good = counts.fail + counts.error === 0;
  const headline = escapeMarkup(verifySummary(counts));
  const failed = results.filter(({ status }) => status === 'fail' || status === 'error');
  const rest = results.filter(({ status }) => status === 'ok' || status === 'skipped');
  const details = (list: readonly VerifyResult[]): string =>
    list.map((result) => caseDetails(result, results.indexOf(result))).join('\n');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="${escapeMarkup(title.by)}">
<title>${headline} · ${escapeMarkup(title.vectors)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<header>
<h1>ropewalk verify</h1>
<p class="dim">vectors <code>${escapeMarkup(title.vectors)}</code>, outputs of <code>${escapeMarkup(title.from)}</code></p>
<p class="dim">${escapeMarkup([title.by, ...title.allowed].join(' · '))}</p>
<p class="verdict ${good ? 'ok' : 'fail'}">${good ? '✓' : '✗'} ${headline}</p>
</header>
${failed.length > 0 ? `<h2>Failed</h2>\n${details(failed)}` : ''}
<h2>${failed.length > 0 ? 'All cases' : 'Cases'}</h2>
<div class="scroll"><table class="cases">
<thead><tr><th class="l">verdict</th><th class="l">case</th><th class="l">op</th><th>wrong</th><th>max abs</th><th>max rel</th><th>max ulp</th><th>NMSE</th><th>gain</th><th>error / bound</th><th class="l">angles</th></tr></thead>
<tbody>
${results.map(caseRow).join('\n')}
</tbody></table></div>
${rest.length > 0 ? `<h2>${failed.length > 0 ? 'The others' : 'In detail'}</h2>\n${details(rest)}` : ''}
</main>
</body>
</html>
`;
}

const WORDS: Readonly<Record<VerifyResult['status'], [mark: string, word: string, style: string]>> = {
  ok: ['✓', 'OK', 'ok'],
  fail: ['✗', 'FAIL', 'fail'],
  error: ['✗', 'FAIL', 'fail'],
  skipped: ['–', 'skipped', 'skip'],
};

function caseRow(result: VerifyResult, n: number): string {
  const [mark, word, style] = WORDS[result.status];
  const max = (key: 'maxAbs' | 'maxRel' | 'maxUlp' | 'nmse'): string =>
    result.tensors.length === 0 ? '' : shortNumber(Math.max(...result.tensors.map((t) => t[key])));
  const wrong = result.tensors.reduce((sum, t) => sum + t.wrong, 0);
  const gains = result.tensors.map((t) => gainText(t.gain)).join(', ');
  const angles = result.table ? (result.table.met ?? `worse than ${result.table.allowed}`) : '';
  const ratio = result.tensors.length === 0 ? '' : ratioText(Math.max(...result.tensors.map((t) => t.maxRatio)));
  const cells = [max('maxAbs'), max('maxRel'), max('maxUlp'), max('nmse'), escapeMarkup(gains), ratio];
  return (
    `<tr><td class="l ${style}">${mark} ${word}</td><td class="l id"><a href="#case-${n}">${escapeMarkup(result.id)}</a></td><td class="l">${escapeMarkup(result.op)}</td>` +
    `<td>${result.tensors.length > 0 ? wrong : ''}</td>${cells.map((cell) => `<td>${cell}</td>`).join('')}<td class="l">${escapeMarkup(angles)}</td></tr>`
  );
}

function caseDetails(result: VerifyResult, n: number): string {
  const [mark, word, style] = WORDS[result.status];
  const bad = result.status === 'fail' || result.status === 'error';
  const parts: string[] = [];
  if (result.about !== '') parts.push(`<p class="dim">${escapeMarkup(result.about)}</p>`);
  if (result.detail !== undefined) parts.push(`<pre>${escapeMarkup(result.detail).replaceAll('&#10;', '\n')}</pre>`);
  for (const note of result.notes) parts.push(`<p class="dim">note: ${escapeMarkup(note)}</p>`);
  parts.push(...result.tensors.map(tensorSection));
  if (result.next !== undefined)
    parts.push(`<p>Next:</p><pre>${escapeMarkup(result.next).replaceAll('&#10;', '\n')}</pre>`);
  return `<details id="case-${n}"${bad ? ' open=""' : ''}>
<summary><span class="${style}">${mark} ${word}</span> <strong>${escapeMarkup(result.id)}</strong></summary>
<div>${parts.join('\n')}</div>
</details>`;
}

function tensorSection(t: TensorReport): string {
  const facts = [
    `${t.wrong} of ${t.elements} outside the bound`,
    `max abs ${shortNumber(t.maxAbs)}`,
    `rel ${shortNumber(t.maxRel)}`,
    `${shortNumber(t.maxUlp)} ulp`,
    `NMSE ${shortNumber(t.nmse)}`,
    `gain ${gainText(t.gain)}`,
    ...(t.worstPair === undefined || t.wrong === 0 ? [] : [`worst pair ${t.worstPair}`]),
    ...(t.worstPosition === undefined || t.wrong === 0 ? [] : [`worst position ${t.worstPosition.join('/')}`]),
  ];
  const parts = [
    `<h3>${escapeMarkup(t.name)} <span class="dim">${t.dtype} [${t.shape.join(', ')}]</span></h3>`,
    `<p>${escapeMarkup(facts.join(' · '))}</p>`,
  ];
  if (t.map) parts.push(heatMap(t.name, t.map));
  if (t.first.length > 0) {
    const { header, rows } = wrongTable(t.first);
    const cells = (row: readonly string[], tag: string): string =>
      row.map((text, c) => `<${tag}${c === 0 ? ' class="l"' : ''}>${escapeMarkup(text)}</${tag}>`).join('');
    parts.push(
      `<p class="dim">${t.wrong > t.first.length ? `The first ${t.first.length} of ${t.wrong} wrong elements` : 'The wrong elements'}</p>`,
      `<div class="scroll"><table><thead><tr>${cells(header, 'th')}</tr></thead><tbody>${rows.map((row) => `<tr>${cells(row, 'td')}</tr>`).join('')}</tbody></table></div>`,
    );
  }
  return `<section>${parts.join('\n')}</section>`;
}

/** Space for the labels left of and below the map, in SVG units. */
const LEFT = 84;
const BELOW = 34;
/** The map's width without labels: cells are as wide as this allows, within reason. */
const WIDTH = 720;

/**
 * The error map as SVG: a column for each pair and a row for each token. The colour is the largest |error| / bound.
 * Neighbours of the same shade share a rectangle.
 */
function heatMap(name: string, map: ErrorMap): string {
  const cellWidth = Math.max(3, Math.min(24, Math.floor(WIDTH / map.columns)));
  const cellHeight = Math.max(6, Math.min(18, Math.floor(480 / map.rows)));
  const width = LEFT + cellWidth * map.columns + 8;
  const height = cellHeight * map.rows + BELOW;
  const rects: string[] = [];
  for (let row = 0; row < map.rows; row++) {
    for (let start = 0; start < map.columns; ) {
      const shade = shadeOf(map.ratio[row * map.columns + start]!);
      let end = start + 1;
      let largest = start;
      while (end < map.columns && shadeOf(map.ratio[row * map.columns + end]!) === shade) {
        if (map.ratio[row * map.columns + end]! > map.ratio[row * map.columns + largest]!) largest = end;
        end++;
      }
      const at = row * map.columns + largest;
      const first = start * map.pairsPerColumn;
      const last = Math.min(map.pairs, end * map.pairsPerColumn) - 1;
      const pairs = first === last ? `pair ${first}` : `pairs ${first} to ${last}`;
      const text = `${pairs}, ${rowText(map, row)}: error up to ${elementValue(Number(map.error[at]!.toPrecision(3)))}, ${ratioText(map.ratio[at]!)} of the bound`;
      rects.push(
        `<rect class="s${shade}" x="${LEFT + start * cellWidth}" y="${row * cellHeight}" width="${(end - start) * cellWidth}" height="${cellHeight}"><title>${escapeMarkup(text)}</title></rect>`,
      );
      start = end;
    }
  }
  const every = Math.max(1, Math.ceil(13 / cellHeight));
  const rowLabels = map.rowOf.map((row, r) => {
    const y = r * cellHeight + cellHeight / 2 + 4;
    return r % every === 0
      ? `<text x="${LEFT - 6}" y="${y}" text-anchor="end">${escapeMarkup(labelOf(map, row))}</text>`
      : '';
  });
  const columnStep = niceStep(Math.ceil(44 / cellWidth));
  const columnLabels = Array.from({ length: Math.ceil(map.columns / columnStep) }, (_, c) => {
    const x = LEFT + c * columnStep * cellWidth + cellWidth / 2;
    const y = map.rows * cellHeight + 14;
    return `<text x="${x}" y="${y}" text-anchor="middle">${c * columnStep * map.pairsPerColumn}</text>`;
  });
  const worst = map.ratio.reduce((a, b) => Math.max(a, b), 0);
  const summary = `Error of ${name} by pair and position, at most ${ratioText(worst)} of the bound`;
  const legend = SHADES.map(({ label }, n) => `<li><i class="s${n}"></i>${escapeMarkup(label)}</li>`).join('');
  return `<figure style="margin:.5rem 0"><figcaption class="dim">Largest error over its bound, by pair (across) and token position (down)</figcaption>
<div class="scroll"><svg role="img" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" aria-label="${escapeMarkup(summary)}"><title>${escapeMarkup(summary)}</title>
${rects.join('')}
${[...rowLabels, ...columnLabels].join('')}<text x="${LEFT + (cellWidth * map.columns) / 2}" y="${map.rows * cellHeight + 29}" text-anchor="middle">pair</text><text x="${LEFT - 6}" y="${map.rows * cellHeight + 14}" text-anchor="end">position</text></svg></div>
<ul class="legend" aria-label="error over bound">${legend}</ul></figure>`;
}

function shadeOf(ratio: number): number {
  return SHADES.findIndex(({ upTo }) => ratio <= upTo);
}

function rowText(map: ErrorMap, row: number): string {
  const { batch, token, positions } = map.rowOf[row]!;
  const more = map.tokensPerRow > 1 ? ` and the ${map.tokensPerRow - 1} tokens after it` : '';
  return `position ${positions.join('/')} (token ${token} of batch ${batch})${more}`;
}

/** The batch is left out if there is only one. */
function labelOf(map: ErrorMap, { batch, positions }: ErrorMap['rowOf'][number]): string {
  const several = map.rowOf.some((row) => row.batch !== map.rowOf[0]!.batch);
  const text = positions.join('/');
  return several ? `b${batch} ${text}` : text;
}

/** The next of 1, 2, 4, 8, 16 …: pairs are counted in powers of two. */
function niceStep(least: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, least)));
}
