/** What the help of each command has besides its options: its group, its page, examples. @module */
import type { Command } from 'commander';

/** Where the pages are. It changes at the release: CONTRIBUTING.md, "A release". */
export const DOCS = 'docs';

/** By group: each command's page in docs/, and one or two calls of it. */
const GROUPS: Readonly<Record<string, Readonly<Record<string, readonly [page: string, ...examples: string[]]>>>> = {
  'Kernels: is it right, and if not, what is wrong': {
    check: ['cli.md#ropewalk-check', 'check', 'check --backend cpu --filter ggml --verbose'],
    bench: ['cli.md#ropewalk-bench', 'bench --backend cpu', 'bench --quick --only "^rope f32"'],
    diagnose: [
      'diagnose.md',
      'diagnose --demo',
      'diagnose --x x.npy --y y.npy --positions positions.npy --expect config.json',
    ],
    mutants: ['mutants.md', 'mutants --vectors golden'],
    verify: ['verify.md', 'verify golden --outputs outputs', 'verify golden --program "python3 harness.py"'],
    harness: ['verify.md#paste-a-kernel', 'harness numpy -o harness.py'],
    vectors: ['vectors.md', 'vectors golden', 'vectors golden --model config.json --dtype float16 --format npz'],
  },
  'Models: read, compare and convert them': {
    inspect: ['cli.md#ropewalk-inspect-model', 'inspect config.json', 'inspect model.gguf --context 32768'],
    permute: ['permute.md', 'permute model.safetensors permuted.safetensors --to interleaved'],
    convert: ['convert.md', 'convert config.json --to vllm', 'convert model.gguf --to onnx --table-len 4096 -o tables'],
    'to-gguf': ['to-gguf.md', 'to-gguf folder -o model.gguf', 'to-gguf folder -o model.gguf --type q8_0'],
    'to-safetensors': ['to-gguf.md', 'to-safetensors model.gguf -o folder'],
    import: ['import.md', 'import model.onnx'],
    diff: ['diff.md', 'diff config.json model.gguf'],
    export: ['export.md', 'export config.json -o rope.onnx', 'export model.gguf --whole -o folder'],
  },
  'Models: run them': {
    generate: ['model.md', 'generate "Call me" -n 80 -s 1', 'generate "Who are you?" -m model.gguf --chat'],
    cache: ['model.md#engines', 'cache', 'cache --remove'],
    perplexity: ['cli.md#models', 'perplexity text.txt -m model.gguf'],
    logits: ['cli.md#models', 'logits model.gguf -p "Call me" -o logits.npy'],
    'compare-logits': [
      'cli.md#models',
      'compare-logits logits.npy other.npy',
      'compare-logits a.gguf b.gguf -p "Call me"',
    ],
  },
  'Other hardware': {
    aicore: ['aicore.md', 'aicore --kernel fast', 'aicore --kernel my.mjs --dtype f32'],
    devices: ['devices.md', 'devices ort-qnn', 'devices --model config.json'],
  },
  Shell: { completion: ['cli.md#completion', 'completion bash'] },
};

/** Puts the commands into groups, and a page and examples below the options of each. */
export function addHelp(program: Command): void {
  for (const [group, commands] of Object.entries(GROUPS))
    for (const [name, [page, ...examples]] of Object.entries(commands)) {
      const calls = examples.map((example) => `  ropewalk ${example}`);
      program.commands
        .find((command) => command.name() === name)!
        .helpGroup(`${group}:`)
        .addHelpText('after', ['', 'Examples:', ...calls, '', `More: ${DOCS}/${page}`].join('\n'));
    }
  program.commandsGroup('Shell:').helpCommand(true).addHelpText('after', `\nMore: ${DOCS}/cli.md`);
}
