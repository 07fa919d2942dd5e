/** Runs the command line as on a machine without onnxruntime-node. */
import { spawnSync } from 'node:child_process';
import { commandPath, type Ran } from './command.js';

const HOOKS = `export async function resolve(name, context, next) {
  if (name === 'onnxruntime-node') throw Object.assign(new Error('not found'), { code: 'ERR_MODULE_NOT_FOUND' });
  return next(name, context);
}`;
/** This loader does not find the package. */
const HIDE = `import { register } from 'node:module';
register('data:text/javascript,' + encodeURIComponent(${JSON.stringify(HOOKS)}));`;

/** Runs `ropewalk …` without the package. */
export function withoutOnnxruntime(cwd: string, ...args: string[]): Ran {
  const program = ['--import', `data:text/javascript,${encodeURIComponent(HIDE)}`, commandPath()];
  const { status, stdout, stderr } = spawnSync(process.execPath, [...program, ...args], { encoding: 'utf8', cwd });
  return { status, stdout, stderr };
}
