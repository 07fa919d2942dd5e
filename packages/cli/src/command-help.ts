/** The parts of each command's help beside its options: its group, its page in docs/, and examples. @module */
import type { Command } from 'commander';

/** The folder of the pages. It changes at the release: CONTRIBUTING.md, "A release". */
export const DOCS = 'docs';

/** Maps the commands of each group to their page and to one or two calls. */
const GROUPS: Readonly<Record<string, Readonly<Record<string, readonly [page: string, ...examples: string[]]>>>> = {
  'Check a kernel': {
    check: ['cli.md#ropewalk-check', 'check', 'check --backend cpu --filter ggml --verbose'],
    diagnose: [
      'diagnose.md',
      'diagnose --demo',
      'diagnose --x x.npy --y y.npy --positions positions.npy --expect config.json',
    ],
    vectors: ['vectors.md', 'vectors golden', 'vectors golden --model config.json --dtype float16 --format npz'],
    verify: ['verify.md', 'verify golden --outputs outputs', 'verify golden --program "python3 harness.py"'],
    harness: ['verify.md#paste-a-kernel', 'harness numpy -o harness.py'],
    positions: ['diagnose.md#positions-as-they-should-be', 'positions log.jsonl'],
    'cache-diff': ['diagnose.md#two-caches', 'cache-diff before.npz after.npz --expect config.json'],
    mutants: ['mutants.md', 'mutants --vectors golden'],
  },
  'Convert a model': {
    inspect: ['cli.md#ropewalk-inspect-model', 'inspect config.json', 'inspect model.onnx'],
    diff: ['diff.md', 'diff config.json model.gguf'],
    passport: ['passport.md', 'passport config.json model.gguf --strict'],
    convert: ['convert.md', 'convert config.json --to vllm', 'convert model.gguf --to onnx --table-len 4096 -o tables'],
    export: ['export.md', 'export config.json -o rope.onnx', 'export model.gguf --whole -o folder'],
    permute: ['permute.md', 'permute model.safetensors permuted.safetensors --to interleaved'],
    'to-gguf': ['to-gguf.md', 'to-gguf folder -o model.gguf', 'to-gguf folder -o model.gguf --type q8_0'],
    'to-safetensors': ['to-gguf.md', 'to-safetensors model.gguf -o folder'],
  },
  'Run a model': {
    generate: ['model.md', 'generate "Call me" -n 80 -s 1', 'generate "Who are you?" -m model.gguf --chat'],
    embed: [
      'model.md#embedmodel-text-options',
      'embed embeddinggemma "A marline is a light rope." --prompt-name query',
      'embed model.gguf -f texts.txt --dimensions 256 -o vectors.npy',
    ],
    perplexity: ['cli.md#run-a-model', 'perplexity text.txt -m model.gguf'],
    logits: ['cli.md#run-a-model', 'logits model.gguf -p "Call me" -o logits.npy'],
    'compare-logits': [
      'cli.md#run-a-model',
      'compare-logits logits.npy other.npy',
      'compare-logits a.gguf b.gguf -p "Call me"',
    ],
    probe: [
      'probe.md',
      'probe http://localhost:8080 -m model.gguf',
      'probe http://localhost:8080',
      'probe --replay answers.jsonl -m folder',
      'probe http://localhost:8080 -m model.gguf --watch 60 --history probes.jsonl',
    ],
    trace: ['trace.md', "trace record -p 'Call me' -o ours", 'trace ours theirs.safetensors'],
    cache: ['model.md#engines', 'cache', 'cache --remove'],
  },
  'Look at a device': {
    bench: ['cli.md#ropewalk-bench', 'bench --backend cpu', 'bench --quick --only "^rope f32"'],
    devices: ['devices.md', 'devices ort-qnn', 'devices --model config.json'],
    aicore: ['aicore.md', 'aicore --kernel fast', 'aicore --kernel my.mjs --dtype f32'],
  },
};

/** Sorts the commands into the groups and the order of the table, and puts a page and examples below their options. */
export function addHelp(program: Command): void {
  const addPage = (name: string, [page, ...examples]: readonly string[]): Command => {
    const calls = examples.map((example) => `  ropewalk ${example}`);
    const command = program.commands.find((one) => one.name() === name)!;
    return command.addHelpText('after', ['', 'Examples:', ...calls, '', `More: ${DOCS}/${page}`].join('\n'));
  };
  for (const [group, commands] of Object.entries(GROUPS))
    for (const [name, page] of Object.entries(commands)) addPage(name, page).helpGroup(`${group}:`);
  const order = [...Object.values(GROUPS).flatMap((commands) => Object.keys(commands)), 'completion'];
  (program.commands as Command[]).sort((a, b) => order.indexOf(a.name()) - order.indexOf(b.name()));
  addPage('completion', ['cli.md#completion', 'completion bash']);
  // Commands without a group, completion and help, are named below the groups.
  program
    .configureHelp({ ...program.configureHelp(), visibleCommands: grouped })
    .addHelpText(
      'after',
      `\nropewalk COMMAND --help has the options of a command, ropewalk completion SHELL completes them.\nMore: ${DOCS}/cli.md`,
    );
}

function grouped({ commands }: Command): Command[] {
  return commands.filter((command) => command.helpGroup());
}
