/** `ropewalk trace record`: writes the tensors of our decoder's forward pass. @module */
import { Recorder } from '@ropewalk/trace/internal/node';
import { fail } from 'ropewalk/backend';
import { untilInterrupted } from './interrupt.js';
import { checkPositions, type LogitsInput, readSeen } from './logits.js';
import { Flags, type Texts } from './options.js';
import { counted, EXIT, printResult, sizeText } from './output.js';
import { loadForCommand } from './run-model.js';

export type TraceRecordOptions = LogitsInput & Texts<'at' | 'out'>;

export async function traceRecord(options: TraceRecordOptions): Promise<number> {
  const { at, out, json, activations, backend } = options;
  if (out === undefined) fail('FORMAT', '--out', 'it is missing. Give a folder to write: -o DIR.');
  const seen = await readSeen('trace record', options);
  const context = new Flags(options).number('context');
  let ids = seen.ids ?? [];
  let recorder: Recorder | undefined;
  const done = await untilInterrupted('trace', async (signal) => {
    const model = await loadForCommand(options, signal, {
      tokenizer: seen.ids ? false : undefined,
      engine: async (threads) => {
        // The kernels refuse other words.
        recorder = new Recorder(at, { threads, backend: backend as 'cpu', activations: activations as 'f32' });
        return recorder.engine;
      },
      context({ maxContext }, tokenizer) {
        if (tokenizer) ids = tokenizer.encode(seen.prompt!.text!);
        checkPositions(seen, ids.length);
        return context ?? Math.max(1, Math.min(ids.length, maxContext)); // the library refuses what is left
      },
    });
    try {
      seen.prompt?.warnUnread();
      const written = await recorder!.record(model, out, { ids, positions: seen.positions?.values, signal });
      return { ...written, tokens: ids.length, backend: model.backend };
    } finally {
      model.dispose();
    }
  });
  if (done === undefined) return EXIT.failed;
  const size = `${counted(done.tensors, 'tensor')} of ${counted(done.tokens, 'token')}, ${sizeText(done.bytes)}`;
  printResult(json, { json: () => ({ out, ...done }), lines: () => [`${out}: ${size}, on ${done.backend}`] });
  return EXIT.ok;
}
