/**
 * The commands, their arguments and their options.
 *
 * A short flag means the same in every command, and the same as in llama.cpp (docs/cli.md has the table).
 *
 * A command's code is loaded only when the command runs, because loading all of it would take most of the time of a
 * short command. A command returns its exit code. Wrong options and files are thrown as RopewalkError, with exit code 2.
 *
 * @module
 */
import { styleText } from 'node:util';
import { Command, Option } from 'commander';
import { MAX_THREADS } from 'ropewalk/internal';
import { addHelp } from './command-help.js';
import { collect, ourDtypes } from './options.js';
import { VERSION } from './version.js';

const JSON_OBJECT = ['--json', 'print one JSON object on a line'] as const;
const JSON_LINES = ['--json', 'print a JSON object a line, the last one with the summary'] as const;
const CONTEXT = ['-c, --context <tokens>', 'the context in use, for scaling that depends on it'] as const;
const MODEL = 'a config.json, a .gguf, or a folder with one';
const BACKEND = '-b, --backend <name>';

/** Replaces -1, which means no limit in llama.cpp. */
const limitOf = (text: string): string => (text === '-1' ? String(Number.MAX_SAFE_INTEGER) : text);

/** Accepts another long name for an option, llama.cpp's or an earlier one, which help does not list. */
function alias(command: Command, flags: string, option: string, read = (text: string): string => text): Command {
  const hidden = new Option(flags).hideHelp();
  return command.addOption(hidden).on(`option:${hidden.name()}`, (text: string) => {
    command.setOptionValueWithSource(option, read(text), 'cli');
  });
}

/** Callbacks of a run. */
export interface ProgramListener {
  /** Called with the command that was chosen, before its options are read. */
  onCommand?(command: Command): void;
  /** Called with the exit code of a command that has ended. */
  onEnd?(exitCode: number): void;
}

/** Builds the command line. Parsing throws errors: nothing here prints them or ends the process. */
export function createProgram({ onCommand, onEnd }: ProgramListener = {}): Command {
  const ending = <A extends unknown[]>(work: (...given: A) => Promise<number>) => {
    return async (...given: A): Promise<void> => onEnd?.(await work(...given));
  };
  const program = new Command('ropewalk')
    .description(
      'RoPE and the other operators of a decoder-only transformer: find bugs in kernels; compare, convert and run models.',
    )
    .version(VERSION)
    .exitOverride()
    .configureOutput({ outputError() {}, getOutHelpWidth: () => Math.min(process.stdout.columns || 100, 120) })
    // With the default width, text beside a long option would not be wrapped.
    .configureHelp({ minWidthToWrap: 20, styleTitle: (title) => styleText('bold', title, { validateStream: false }) })
    .hook('preSubcommand', (_program, command) => onCommand?.(command));

  program
    .command('check')
    .description('run the conformance suites on every backend that works on this machine')
    .option(BACKEND, 'only this backend')
    .option(
      '--provider <names>',
      "onnxruntime: execution providers, separated by commas: cpu (default), cuda, webgpu, … if ONNX Runtime's build has them",
    )
    .option('--form <form>', 'onnxruntime: graphs of standard operators (standard, the default) or of primitives')
    .option('--angles <dtype>', 'onnxruntime, primitives: the precision of angles: f64 (default), f32 or f32-reduced')
    .option('--filter <regex>', 'only cases or suites that match')
    .option('--case <lines>', 'run lines of the output again, or any ROPE(…) lines; a file or log of such lines; or -')
    .option('--vectors <dir>', 'run the golden vectors in a folder instead of the built-in suites')
    .option('--verbose', 'print a line for each case, not only for those that fail')
    .option(...JSON_LINES)
    .action(ending(async (options) => (await import('./check.js')).check(options)));

  program
    .command('bench')
    .description('time the operators on this machine, beside a copy of the same bytes')
    .option(BACKEND, 'cpu or webgpu; unless given both, where they work')
    .option(
      '-t, --threads <list>',
      'cpu: threads that compute; several numbers with commas; its own choice unless given',
    )
    .option('--only <regex>', 'only cases whose label matches; or ROPE(…) lines of your own')
    .option('--quick', 'one call of each case on small shapes: shows that all is right, and not how fast')
    .option('--json <file>', 'write every number there: median, quartiles, bytes, operations, error')
    .option('--svg <file>', 'cpu: draw each operator under the roofs of memory and of arithmetic')
    .action(ending(async (options) => (await import('./bench.js')).bench(options)));

  program
    .command('inspect')
    .alias('import')
    .description(
      'print the effective RoPE of each layer of a model, or of an ONNX graph and what it contains; or list tensors',
    )
    .argument('<model>', `${MODEL}, a .safetensors, an .onnx, or a ROPE(…) line`)
    .option(...CONTEXT)
    .option('--tensors', 'list the tensors of its files instead: name, type, shape, bytes')
    .option('--metadata', 'list the metadata of its files instead; long values are cut')
    .option('--run <node>', 'onnx: run this RoPE: the name of its node, or of the value it writes')
    .option('--x <file>', 'with --run: its input, .npy in the shape of the graph; bf16 as u16')
    .option('--positions <file>', 'with --run: the positions, .npy of integers')
    .option(
      '--input <name=file>',
      'with --run: another input that the angles need, .npy; may be given several times',
      collect,
    )
    .option('-o, --out <file>', 'with --run: the result, .npy')
    .option(BACKEND, 'with --run: the backend that computes; by default the fastest that works on this machine')
    .option(...JSON_OBJECT)
    .action(ending(async (file, options) => (await import('./inspect.js')).inspect(file, options)));

  program
    .command('diagnose')
    .description('say from input, output and positions what a kernel did, and which known bug that is')
    .option(
      '--x <file>',
      'what the kernel read: .npy, .bin, or file.npz:name, file.pt:name, file.safetensors:name; [batch, seq, head, head_dim] or without batch',
    )
    .option('--y <file>', 'what it wrote, in the same shape')
    .option('--positions <file>', 'its positions: [seq], [batch, seq], or with axes in front')
    .option(
      '--tokens <n>',
      'its tokens are one sequence of so many: positions follow, and --positions is held against them',
    )
    .option(
      '--cu-seqlens <list>',
      'likewise packed sequences: where each begins, and the end, such as 0,5,9; or a dump',
    )
    .option('--attention-mask <file>', 'likewise [batch, tokens]: 0 for padding; a dump or .json')
    .option('--chunks <list>', 'likewise the last call of a prefill in chunks of so many tokens')
    .option('--cached <list>', 'tokens in the cache before: of all sequences, or of each')
    .option('--grid <images>', 'images for M-RoPE: TOKEN:TxHxW, such as "4:1x16x16"')
    .option(
      '--rank-layout <rank>',
      "the share of one rank, such as zigzag:0/4 (contiguous, zigzag, round-robin); zigzag or tp alone where --x and --y name all ranks' files, 'rank*/q.npy'",
    )
    .option('--then <file>', 'the keys y later in the cache, to say how each was moved, turned and rounded')
    .option('--then-positions <file>', 'their positions then')
    .option(
      '--expect <rope>',
      `what it should do: ${MODEL}, a ROPE(…) line, or a .json with a record or a peer's arguments`,
    )
    .option('--layer <n>', 'the layer of the model; the first one with RoPE unless given')
    .option(...CONTEXT)
    .option(
      '--layout <letters>',
      'bsnh, bnsh or sbnh: batch, sequence, number of heads, head_dim; unless given, bsnh, or bnsh where only that fits',
    )
    .option('--heads <n>', 'x and y are [tokens, hidden] or [batch, tokens, hidden] with so many heads')
    .option('--direction <way>', 'forward (default) or backward')
    .option(
      '--dtype <dtype>',
      'what the kernel stores, if the file does not say: of a raw .bin, of 16-bit integers, of a wider dump',
    )
    .option('--shape <sizes>', 'the shape of x and y in raw .bin files, such as 1,32,8,128')
    .option('--positions-dtype <dtype>', 'what a raw .bin of positions holds, such as i64')
    .option(
      '--norm-weight <file>',
      'the weight of the RMS norm that the kernel applies before the rotation, [head_dim]',
    )
    .option('--norm-eps <number>', 'its epsilon; 1e-6 unless given')
    .option('--svg <file>', 'draw the frequency of each pair, expected and found')
    .option('--next-input <dir>', 'write x.npy and positions.npy that distinguish what this input cannot')
    .option('--all', 'print every line of the report, and the frequencies as a plot')
    .option('--demo', 'diagnose a wrong kernel that comes with ropewalk')
    .option(...JSON_OBJECT)
    .action(ending(async (options) => (await import('./diagnose.js')).diagnose(options)));

  program
    .command('cache-diff')
    .description('say what became of each key of a KV cache: moved, turned by how many positions, rounded')
    .argument(
      '<a>',
      'a cache: .npy of keys, [tokens, heads, head_dim] or with layers in front; .npz, .pt, .safetensors',
    )
    .argument('<b>', 'a later state of it, or the cache of another runtime')
    .option('--expect <rope>', `the RoPE of its keys: ${MODEL}, or a ROPE(…) line`)
    .option('--layer <n>', "the layer whose RoPE all keys have; unless given, each layer's own")
    .option(...CONTEXT)
    .option('--layout <letters>', 'bsnh (tokens before heads, the default) or bnsh')
    .option('--positions <file>', 'the position of each token in a')
    .option('--then-positions <file>', 'and in b: keys must be turned by the difference')
    .option(...JSON_OBJECT)
    .action(ending(async (a, b, options) => (await import('./cache-diff.js')).cacheDiff(a, b, options)));

  program
    .command('positions')
    .description('hold a log of positions, JSON lines of a server, against what must be so')
    .argument('[log]', 'a file of JSON lines, or - for stdin')
    .option(...JSON_OBJECT)
    .action(ending(async (log, options) => (await import('./positions.js')).positions(log, options)));

  program
    .command('mutants')
    .description('say how many known wrong kernels a set of test vectors detects')
    .option('--vectors <dir>', 'the vectors to score; the built-in suites unless given')
    .option('--filter <regex>', 'only cases or suites that match')
    .option('--list', 'print the catalogue of wrong kernels')
    .option(...JSON_LINES)
    .action(ending(async (options) => (await import('./mutants.js')).mutants(options)));

  program
    .command('permute')
    .description("rewrite a model's q and k weights from one pairing to the other")
    .argument('<in>', 'a .safetensors or .gguf file, or a folder with one model')
    .argument('[out]', 'the file or folder to write; it must not exist')
    .requiredOption('--to <pairing>', 'interleaved or half')
    .option('--from <pairing>', 'how the weights are laid out, if the model does not say')
    .option('--config <file>', "the model's config.json, if it is not beside IN")
    .option('--heads <n>', 'number of q heads, if the model does not say')
    .option('--kv-heads <n>', 'number of k heads')
    .option('--head-dim <n>', 'rows of a head')
    .option('--rotary-dim <n>', 'rows of a head that are rotated')
    .option('--tensors <regex>', 'only tensors that match; groups (?<q>…) and (?<k>…) name tensors of unknown models')
    .option('--dry-run', 'only print what would be done')
    .option('--check', 'compare the scores of all layers and heads instead of a sample')
    .option('--force', 'permute even if the weights seem to have this pairing; replace OUT if it is a file')
    .option(...JSON_OBJECT)
    .action(ending(async (input, output, options) => (await import('./permute.js')).permute(input, output, options)));

  const repacking = (name: string, description: string, model: string): Command =>
    program
      .command(name)
      .description(description)
      .argument('<model>', model)
      .option('--no-vocabulary', 'leave the tokenizer out')
      .option(...JSON_OBJECT);
  repacking('to-gguf', 'write a HuggingFace model as a GGUF file, and read it back', 'a folder with config.json')
    .requiredOption('-o, --out <file>', 'the .gguf to write')
    .option('--type <type>', 'what matrices become: f32, f16, bf16, q8_0 or q4_0; as they are unless given')
    .option('--force', 'replace the file if it exists')
    .action(ending(async (model, options) => (await import('./repack.js')).toGguf(model, options)));
  repacking('to-safetensors', 'write a GGUF as a HuggingFace folder, and read it back', 'a .gguf, or a folder with one')
    .requiredOption('-o, --out <folder>', 'the folder to write; it must not exist')
    .option('--type <type>', 'what weights become: f32, f16 or bf16; as they are unless given, and f16 of blocks')
    .action(ending(async (model, options) => (await import('./repack.js')).toSafetensors(model, options)));

  program
    .command('convert')
    .description("write one layer's RoPE as another peer's arguments, and prove it by reading it back")
    .argument('<from>', `${MODEL}, a record, arguments as .json, or a ROPE(…) line`)
    .option(
      '--to <target>',
      'huggingface, gguf, ggml, cann, onnx, onnxruntime, infiniop, aclnn, vllm, flashinfer, mlx or spec',
    )
    .option('--matrix <position>', 'instead of --to: print the matrix of a small head at a position')
    .option('--layer <n>', 'the layer of a model; the first one with RoPE unless given')
    .option(...CONTEXT)
    .option('--table-len <n>', 'rows of the tables, for positions 0 to n - 1')
    .option('--heads <n>', 'number of heads, for calls that need it')
    .option('--arch <name>', 'for gguf: general.architecture')
    .option('--model-type <name>', 'for huggingface: the model whose code reads the fields')
    .option('-o, --out <dir>', 'write the arguments and the tables (.npy) into a folder')
    .option(...JSON_OBJECT)
    .action(ending(async (from, options) => (await import('./convert.js')).convert(from, options)));

  program
    .command('diff')
    .description('compare the effective RoPE of two models, or of two readings of one, layer by layer')
    .argument(
      '<a>',
      `${MODEL}, an .onnx, or a record; with @ggml-f32 or @hf-f32 after it, angles are computed as that peer does`,
    )
    .argument('<b>', 'as a')
    .option(...CONTEXT)
    .option('--positions <list>', 'positions at which both rotate a vector', '1,40,8192,131072')
    .option('--recipe <name>', 'how angles of both sides are computed, unless @ says it: float64, ggml-f32 or hf-f32')
    .option(...JSON_OBJECT)
    .action(ending(async (a, b, options) => (await import('./diff.js')).diff(a, b, options)));

  program
    .command('passport')
    .description('what every runtime rotates with a model’s files, what is wrong in them, and what it costs')
    .argument(
      '<models...>',
      `the forms of one model, each ${MODEL}, or an .onnx behind another; the first is what its maker published`,
    )
    .option(
      '--serve <line>',
      'a server and its arguments, such as "llama-server --rope-scale 4"; may be repeated',
      collect,
    )
    .option('--text <file>', 'a text, of which the cost under each reading is computed with the weights of the first')
    .option('--svg <file>', 'with --text: draw the cost by position, a line for each reading')
    .option('--estimate', 'with --text: run some of the far tokens only, as a long text takes long')
    .option(...CONTEXT)
    .option('--strict', 'exit 1 for warnings too')
    .option('--junit <file>', 'write the findings as JUnit XML')
    .option('--stamp <file>', 'write the hash of the RoPE, rope-passport.json, unless there are errors')
    .option('--check', 'hold the model against the stamp instead of writing it')
    .option(BACKEND, 'with --text: as for generate')
    .option('-t, --threads <n>', 'with --text: as for generate')
    .option('--activations <how>', 'with --text: as for generate')
    .option(...JSON_OBJECT)
    .action(ending(async (models, options) => (await import('./passport.js')).passport(models, options)));

  program
    .command('export')
    .description('write RoPE, another operator, or a whole model as ONNX')
    .argument('[model]', `whose RoPE: ${MODEL}, a record or a ROPE(…) line`)
    .option('--layer <n>', 'the layer of a model; the first one with RoPE unless given')
    .option('--rope <line>', 'a ROPE(…) line instead')
    .option('--spec <file>', 'a RopeSpec as .json instead')
    .option(
      '--op <name>',
      'another operator: add, argmax, causal_conv, embedding, expert_linear, geglu, gelu, layer_norm, linear, rearrange, rms_norm, route, scale, self_attention, swiglu, xielu',
    )
    .option(
      '--shape <list>',
      'its dimensions, separated by commas; linear M,N,K, embedding COUNT,ROWS,WIDTH, self_attention BATCH,SEQ,TOTAL,HEADS,KV_HEADS,HEAD_DIM, route TOKENS,EXPERTS,CHOSEN, expert_linear TOKENS,CHOSEN,EXPERTS,N,K',
    )
    .option(
      '--whole',
      'the whole model, as a folder with its tokenizer and configs that transformers.js and others load; takes --form, --angles, --context, --quantize, --widen-halves, --activations, --force, -o FOLDER',
    )
    .option('--quantize <format>', 'whole: matrices of floats become q8_0 or q4_0, rounded as ggml does')
    .option('--widen-halves', 'whole: f16 and bf16 weights become f32, which is exact')
    .option(
      '--activations <how>',
      'whole, contrib: what is multiplied with blocks: q8 (rounded to 8 bits, the default) or f32, slow and exact',
    )
    .option('--force', 'whole: replace a folder that an export wrote')
    .option(
      '--form <form>',
      "standard operators (default), or primitives with the angles computed in the graph; whole: also contrib (default), ONNX Runtime's own operators",
    )
    .option(
      '--for <device>',
      'choose form, angles, opset, layout and dtype as a device takes them, where they are not given: ort-cann, ort-qnn, ort-coreml, ort-webnn, ort-webgpu',
    )
    .option('--angles <mode>', 'f32-reduced, f64, f32, f32-table or f16-table; whole: not f16-table')
    .option('--dtype <dtype>', 'of the data: f32, f16, bf16 or f64; by default the type of a ROPE(…) line, else f32')
    .option('--layout <letters>', 'bsnh (default) or bnsh: batch, sequence, number of heads, head_dim')
    .option('--direction <way>', 'forward (default) or backward')
    .option('--heads <n>', "heads of x, or of q; by default the model's or the ROPE(…) line's")
    .option(
      '--kv-heads <n>',
      "heads of k, for q and k in one ONNX model; by default the model's, unless --heads is given",
    )
    .option(
      '-c, --context <tokens>',
      "positions are below this (tables: 4096 by default; whole: the model's own context); scaling may depend on it too",
    )
    .option('--norm-eps <number>', 'first an RMS norm of each head, with this epsilon')
    .option('--kv-cache', 'write k into rows of a cache')
    .option('--weights <dtype>', 'linear, expert_linear, embedding: f32, f16, bf16, f64, q8_0 or q4_0')
    .option('--bias', 'linear, expert_linear, layer_norm, route, causal_conv: with a bias')
    .option('--eps <number>', 'rms_norm, layer_norm: the epsilon; 1e-6 and 1e-5 unless given')
    .option('--window <n>', 'self_attention: how many keys a query sees')
    .option('--softcap <number>', 'self_attention, scale: caps the scores, or the product')
    .option('--sinks', 'self_attention: with a sink for each head')
    .option('--gate <name>', 'route: softmax (default), sigmoid, softmax-of-chosen or sparsemixer')
    .option('--groups <list>', 'route: experts in groups: COUNT,USED,BEST')
    .option('--normalize', 'route: the weights are divided by their sum')
    .option('--weighted', "expert_linear: a token's products are weighted and added up")
    .option('--approximate <name>', 'gelu, geglu: none (default; erf) or tanh')
    .option('--limit <number>', 'swiglu: clamps the gate and up')
    .option('--alpha <number>', 'swiglu: multiplies the gate inside the sigmoid; 1 unless given')
    .option('--offset <number>', 'swiglu: is added to up; 0 unless given')
    .option('--factor <number>', 'scale: the factor; an input with one for each row unless given')
    .option('--perm <list>', 'rearrange: the order of dimensions; reversed unless given')
    .option('--opset <n>', '23 (default); from 18 on with primitives')
    .option(
      '--count [batch,seq]',
      'count operators and bytes moved, compared with the baseline of twelve steps; 1,512 unless given',
    )
    .option('-o, --out <file>', 'the .onnx to write; replaced if it exists; whole: the folder')
    .option(...JSON_OBJECT)
    .action(
      ending(async (model, options) =>
        options.whole
          ? (await import('./export-whole.js')).exportWhole(model, options)
          : (await import('./export.js')).exportModel(model, options),
      ),
    );

  program
    .command('verify')
    .description("compare a kernel's outputs, or a program's, with the cases of ropewalk vectors")
    .argument('<vectors>', 'a folder that ropewalk vectors wrote')
    .option('--outputs <dir>', 'the outputs: <case>/<output>.npy or .bin, <case>.npz or <case>.safetensors')
    .option('--program <command>', 'a program that computes the outputs; words and quotes, no shell')
    .option('--protocol <name>', 'how the program gets its cases: stdio (default) or files')
    .option('--timeout <seconds>', 'the time limit of each case; 60 unless given')
    .option('--keep <dir>', 'write the outputs there as .npy, and the expected RoPE, for ropewalk diagnose')
    .option('--case <id...>', 'only these cases')
    .option('--op <name>', 'only cases of this operator; several with commas, or by several options', collect)
    .option('--perf', "the program's kernel is timed too: median, bytes, GB/s, beside a copy of as many bytes")
    .option('--max-failures <n>', 'stop after so many cases that fail')
    .option('--table <precision>', 'the precision that RoPE angles may have: float64, f32 (default) or f32-recurrence')
    .option('--arithmetic <kind>', 'f32 (default), or native: 16-bit data is computed in its own dtype')
    .option('--tolerance-scale <factor>', 'multiplies every bound')
    .option('--report <form>', 'console (default), jsonl or junit')
    .option('--json', 'the same as --report jsonl: a JSON object a line, the last one with the summary')
    .option('-o, --out <file>', 'write the report there, and a line for each case to stdout')
    .action(ending(async (vectors, options) => (await import('./verify.js')).verify(vectors, options)));

  program
    .command('harness')
    .description(
      'write a program for verify --program, ready to paste a kernel into, or a hook that writes a dump for trace; without a language list them',
    )
    .argument(
      '[language]',
      'c, cuda, ggml, aclnn, ascendc, infiniop, numpy, torch, triton, onnxruntime, ops, ops-torch, llaisys or js; trace-transformers, trace-vllm, trace-llama-cpp, trace-mlx, trace-onnxruntime, trace-torch or trace-numpy',
    )
    .option('--plain', 'for a kernel that takes q, positions and base, and skips the rest: c, cuda, numpy or torch')
    .option('-o, --out <file>', 'write the program there instead of to stdout')
    .option('--force', 'replace the file if it exists')
    .option(...JSON_OBJECT)
    .action(ending(async (language, options) => (await import('./harness.js')).harness(language, options)));

  program
    .command('vectors')
    .description('write golden cases that distinguish dialects: inputs, expected outputs, tolerances')
    .argument('<out>', 'the folder to write; it must not exist, or be empty')
    .option('-m, --model <path>', `a case for each RoPE of a model: ${MODEL}`)
    .option('--layer <n>', "only this layer's")
    .option(...CONTEXT)
    .option('--rope <line>', 'a ROPE(…) line of ropewalk check')
    .option('--spec <file>', 'a RopeSpec as .json')
    .option(
      '--dialect <name>',
      'the cases that ggml, onnx, infiniop, llaisys, huggingface or cann can express, in its layout',
    )
    .option(
      '--op <name>',
      'only this operator: rope, add, argmax, …; several with commas, or by several options',
      collect,
    )
    .option('--format <form>', 'npy (default), npz, safetensors, onnx, bin, c; several likewise', collect)
    .option(
      '--dtype <dtype>',
      'RoPE in f32, f16, bf16 or f64; other operators: only cases in it; several likewise',
      collect,
    )
    .option('-s, --seed <n>', 'the same seed gives the same bytes; 1 unless given')
    .option('--tokens <n>', 'tokens of RoPE; six unless given')
    .option('--positions <list>', 'positions of the tokens, separated by commas, instead of --tokens')
    .option('--heads <n>', 'heads of RoPE; two unless given')
    .option('--table <precision>', "of RoPE's angles, that the bounds allow: float64, f32 (default) or f32-recurrence")
    .option('--force', 'replace a folder that this command wrote')
    .option(...JSON_OBJECT)
    .action(ending(async (out, options) => (await import('./vectors.js')).vectors(out, options)));

  program
    .command('aicore')
    .description('run kernels, yours too, on a model of the Ascend AI Core: cycles by queue, bytes, buffers, faults')
    .option(
      '--shape <dims>',
      'batch,seq,heads,head_dim; 8,128,32,128 unless given. Of other operators rows,length; 1024,1024 unless given',
    )
    .option('--dtype <dtype>', 'f16 (default), bf16 or f32')
    .option('--pairing <name>', 'interleaved (GPT-J, the default) or half (GPT-NeoX)')
    .option(
      '--kernel <name>',
      'one of baseline, correct, fast, infinicore-gptj, infinicore-neox, add, rms_norm, swiglu, softmax; a file with your own kernel; or all (default): the first three',
    )
    .option('--rope <model>', 'what a kernel of rope in a file computes: a config.json, a .gguf or a ROPE(…) line')
    .option('--eps <number>', 'of rms_norm; 1e-6 unless given')
    .option('--timeout <seconds>', 'for a kernel in a file; 60 unless given')
    .option(
      '--chip <name>',
      '910B3 (default), 910B1, 910B2, 910B2C, 910B4, 910B4-1, 910_9362, 910_9363, 910_9372, 910_9381, 910_9382, 910_9391 or 910_9392; with or without Ascend in front',
    )
    .option('--cores <n>', 'vector cores to spread over; all of the chip unless given')
    .option('--blocks <n>', 'blocks that share the rows; one for each core unless given')
    .option('--tile <n>', 'rows (heads of a token) that fast moves and rotates together')
    .option('--buffers <n>', 'buffers of each queue; 2 unless given')
    .option('--search', 'try the tilings of a kernel, and print the best and what limits it')
    .option('--calibration', 'print the 13 device rows that microseconds come from, each predicted from the others')
    .option('--table-dtype <dtype>', 'f32: cos and sin in f32 beside halves; the type of the elements unless given')
    .option('--rotary-dim <n>', 'how many leading dimensions of a head rotate; all unless given')
    .option('--base <number>', 'of the frequencies; 10000 unless given')
    .option('--table-len <n>', 'rows of the tables; by default as many as the positions need')
    .option('--batch-positions', 'each batch has its own positions: batch b starts at b')
    .option('--svg <file>', 'draw the first instructions of block 0, a lane for each queue')
    .option('--from-cycle <n>', 'where the drawing starts')
    .option('--to-cycle <n>', 'where it ends')
    .option('--trace <file>', 'write all of block 0 for Perfetto or chrome://tracing')
    .option(
      '--emit <language>',
      'ascendc: write the kernel as AscendC for this one call, with the code that launches it',
    )
    .option('-o, --out <file>', 'emit: the .cpp to write; replaced if it exists')
    .option(...JSON_OBJECT)
    .action(
      ending(async (options) => {
        const { aicoreKernel, isOneKernel } = await import('./aicore-kernel.js');
        const one = isOneKernel(options.kernel) || options.emit !== undefined;
        return one ? aicoreKernel(options) : (await import('./aicore.js')).aicore(options);
      }),
    );

  program
    .command('devices')
    .description('list what NPUs and their runtimes take, or print the rules of one with their sources')
    .argument('[name]', 'a profile; all of them unless given')
    .option(
      '-m, --model <model>',
      `say whether this model's RoPE runs there, and how: ${MODEL}, an .onnx, a ROPE(…) line`,
    )
    .option('--dtype <dtype>', "model: of q and k; unless given the one that the device's runtime rotates, or f16")
    .option('--batch <n>', 'model: 1 unless given')
    .option('--batch-positions', 'model: each batch has its own positions')
    .option('--seq <n>', 'model: tokens of a call; 512 unless given')
    .option('--heads <n>', "model: heads of q; by default the model's")
    .option('--kv-heads <n>', "model: heads of k; by default the model's, unless --heads is given")
    .option('-c, --context <tokens>', "model: positions are below this; by default the model's own")
    .option('--cases <suite>', 'run a suite, or lines as check --case, on a profile that computes; say why it fails')
    .option('--log <file>', "judge a log of test-backend-ops on a device of one's own, line by line; or -")
    .option('--steps <line>', 'run a ROPE(…) line step by step, on a profile whose steps are known')
    .option('-o, --out <dir>', 'steps: write every buffer there, after each step')
    .option(...JSON_OBJECT)
    .action(ending(async (name, options) => (await import('./devices.js')).devices(name, options)));

  const running = (command: Command, usual: string): Command =>
    alias(command, '--ctx-size <tokens>', 'context')
      .option(BACKEND, 'cpu (the default), webgpu, reference or onnxruntime')
      .option('-t, --threads <n>', `cpu: threads that compute, at most ${MAX_THREADS}`)
      .option(
        '-c, --context <tokens>',
        `tokens that fit in the KV cache, at most the model's own context; ${usual} unless given. LongRoPE depends on it`,
      )
      .option('--cache-dtype <dtype>', 'of the KV cache: f32 (default), f16, bf16, f8_e4m3 or i8')
      .option(
        '--activations <how>',
        'f32 (default), or q8: rounded to 8 bits beside weights in blocks, as llama.cpp does; faster, on cpu',
      )
      .option(...JSON_OBJECT);
  const withModel = (command: Command, usual: string): Command =>
    running(
      command.option(
        '-m, --model <path>',
        'a folder with config.json, tokenizer.json and *.safetensors, or a .gguf; by default models/marline, which comes with the package',
      ),
      usual,
    );
  const seeing = (command: Command): Command =>
    running(
      command
        .option('--tokens <file>', 'the tokens: a .npy of integers [tokens]; no tokenizer is needed then')
        .option(
          '-p, --prompt <text>',
          "a text instead, for the model's tokenizer; - reads stdin, as does a pipe without these options",
        )
        .option('-f, --file <file>', 'the text, from a UTF-8 file; - for stdin')
        .option('--positions <file>', 'a .npy of integers: [tokens], or [axes, tokens] for models with position axes'),
      'the number of tokens',
    );

  const generating = withModel(program.command('generate'), 'that, but at most 4096,');
  for (const flags of ['--predict <n>', '--n-predict <n>']) alias(generating, flags, 'maxTokens', limitOf);
  generating
    .description('continue a text, or answer a message')
    .argument(
      '[prompt]',
      "the text; - reads stdin, as does a pipe without a prompt; without any, only the model's start token",
    )
    .option('-p, --prompt <text>', 'the prompt; - for stdin')
    .option('-f, --file <file>', 'the prompt, from a UTF-8 file; - for stdin')
    .option(
      '-n, --max-tokens <n>',
      'end after this many tokens; 256 unless given; -1: when the model ends or the context is full',
      limitOf,
    )
    .option(
      '--temp, --temperature <number>',
      '0 takes the likeliest token each time (the default with --model); 0.8 and --top-p 0.95 without --model',
    )
    .option('--top-k <n>', 'only the n likeliest tokens')
    .option('--top-p <p>', 'only the likeliest tokens that make up this probability')
    .option('--min-p <p>', 'only tokens at least this times as likely as the likeliest')
    .option('--repeat-penalty, --repetition-penalty <number>', '> 1 makes the last 64 tokens less likely')
    .option('-s, --seed <n>', 'the same seed gives the same text; -1 for a random one, the default')
    .option('--stop <text>', 'end before this text; may be given several times', collect)
    .option('--chat', "the prompt is a message: use the model's chat template")
    .option('--system <text>', 'the system message, with --chat')
    .option('--on-full <way>', 'when the context is full: stop (default) or shift')
    .option('--ignore-eos', 'go on past the end of the text')
    .option('--session <file>', 'keep keys and values there: the same start of a prompt is not computed again')
    .option('--engine <name>', 'auto (default), kernels or onnxruntime; auto: ONNX Runtime where it is installed')
    .option('--cache <folder>', 'where ONNX Runtime finds the weights that an earlier run has written')
    .action(ending(async (prompt, options) => (await import('./generate.js')).generate(prompt, options)));

  program
    .command('cache')
    .description('list the weights that are kept for ONNX Runtime, or remove them')
    .option('--cache <folder>', "the folder; ROPEWALK_CACHE, or the system's folder for caches, unless given")
    .option('--remove', 'remove all of them')
    .option(...JSON_OBJECT)
    .action(ending(async (options) => (await import('./cache.js')).cache(options)));

  program
    .command('embed')
    .description('make a vector of each text, for search and comparison')
    .argument('<model>', MODEL)
    .argument('[texts...]', 'one or more; - reads stdin, a text a line, as does a pipe without texts')
    .option('-f, --file <file>', 'the texts instead, from a UTF-8 file, one a line; - for stdin')
    .option('--prefix <text>', 'goes before each text, such as "search_query: "')
    .option('--prompt-name <name>', "a prompt of the model's config_sentence_transformers.json, such as query")
    .option('--pooling <how>', 'mean, cls or last; what the model says, or else mean')
    .option('--dimensions <n>', 'keep the first n dimensions, for models that were trained so')
    .option('--no-normalize', 'do not scale vectors to length 1')
    .option('-o, --out <file>', 'the .npy to write: float32 [texts, dimensions]; unless given, numbers are printed')
    .option('--force', 'replace the file if it exists')
    .option(BACKEND, 'cpu (the default), webgpu, reference or onnxruntime')
    .option('-t, --threads <n>', `cpu: threads that compute, at most ${MAX_THREADS}`)
    .option('--activations <how>', 'f32 (default), or q8, as for generate')
    .option(...JSON_OBJECT)
    .action(ending(async (model, texts, options) => (await import('./embed.js')).embed(model, texts, options)));

  withModel(program.command('perplexity'), 'that, but at most 512,')
    .description('say how well a model predicts a text')
    .argument('[file]', 'the text, UTF-8; - reads stdin, as does a pipe without a file')
    .option('-f, --file <file>', 'the text, instead of the argument')
    .option('--stride <n>', 'how many tokens each window moves on; half of a window unless given')
    .action(ending(async (file, options) => (await import('./perplexity.js')).perplexity(file, options)));

  seeing(program.command('logits'))
    .description('write the logits of every token of a text')
    .argument('<model>', MODEL)
    .requiredOption('-o, --out <file>', 'the .npy to write: float32 [tokens, vocabulary]')
    .option('--force', 'replace the file if it exists')
    .action(ending(async (model, options) => (await import('./logits.js')).logits(model, options)));

  seeing(program.command('compare-logits'))
    .description('say how far two runtimes are apart: the largest difference, KL divergence, top-1, top-5')
    .argument('<a>', `the reference: a .npy of logits [tokens, vocabulary], or a model: ${MODEL}`)
    .argument('<b>', 'what is compared with it, likewise')
    .option('--kl <nats>', 'exit 1 beyond this mean KL divergence; 0.01 where no limit is given')
    .option('--top1 <share>', 'exit 1 if the likeliest id is the same at a smaller share of the tokens, in [0, 1]')
    .option('--tolerance <number>', 'exit 1 if a logit differs by more; runtimes of float32 keep 0.001')
    .action(ending(async (a, b, options) => (await import('./compare-logits.js')).compareLogits(a, b, options)));

  seeing(program.command('trace'))
    .description('say where two runs of a model part, and why; or record the tensors of a run')
    .argument('<a>', 'the reference: a folder or a file of tensors; or the word record, which writes such a folder')
    .argument('[b]', 'what is compared with it, likewise')
    .option('--junit <file>', 'write the result there, for CI')
    .option('-m, --model <path>', `record: ${MODEL}; by default models/marline, which comes with the package`)
    .option('--at <names>', "record: the tensors, such as 'layers.*.{q,k,v}'; all of them unless given")
    .option('-o, --out <dir>', 'record: the folder to write')
    .action(ending(async (a, b, options) => (await import('./trace.js')).trace(a, b, options)));

  program
    .command('probe')
    .description('say what RoPE, positions and weights a model server computes with, from its log-probabilities')
    .argument('[url]', 'the server, such as http://HOST:8080: llama-server, vLLM, SGLang, TGI, or OpenAI completions')
    .option(
      '-m, --model <path>',
      'the files that the server is said to have: a folder or a .gguf; without it the server is compared with itself',
    )
    .option('--tokens <n>', 'tokens of the prompt; 250 unless given, or what fits')
    .option('-f, --file <file>', 'a text for the prompt, UTF-8, instead of the built-in one')
    .option('--key-env <name>', 'the environment variable that has the key of the server')
    .option('--timeout <seconds>', 'how long an answer may take; 120 unless given')
    .option(
      '--budget <tokens>',
      'the most prompt tokens to send in all; a longer text is sent from them where it tells hypotheses apart',
    )
    .option('--record <file>', 'keep the answers there; what the file has already is not asked again')
    .option('--replay <file>', 'judge the answers in a recording, without a server')
    .option('--history <file>', 'add the verdict there, a JSON line, and say what changed since the last one')
    .option('--watch <minutes>', 'probe again and again, with so long a pause, until it is interrupted')
    .option('--svg <file>', 'draw the differences by position there, with the hypothesis that fits')
    .option('-t, --threads <n>', `threads that compute, at most ${MAX_THREADS}`)
    .option(...JSON_OBJECT)
    .action(ending(async (url, options) => (await import('./probe.js')).probe(url, options)));

  program
    .command('completion')
    .description('print what a shell needs to complete commands and options')
    .argument('<shell>', 'bash, zsh or fish')
    .action(ending(async (shell) => (await import('./completion.js')).completion(shell, program)));

  for (const command of program.commands)
    for (const option of command.options) {
      const { mandatory, flags, parseArg } = option;
      if (mandatory) command.usage(`${command.usage()} ${flags.replace(/^-\w, /, '')}`);
      if (flags.includes('<dtype>'))
        option.argParser((text, before) => (parseArg ?? ((own) => own))(ourDtypes(text), before));
    }
  addHelp(program);
  return program;
}
