/**
 * Runs in a page or in a worker, bundled. It does what a user of WebNN does, also with a lost context and with tensors
 * that are too large, and logs the results. A page then has `globalThis.afterDeath`, which the test calls after the
 * browser's GPU process has died.
 */
import { openWebnn, whyNotWebnn } from '@ropewalk/onnx';
import { ropewalk } from 'ropewalk';

/** @param {() => unknown} act */
const refusal = async (act) => {
  try {
    await act();
    return 'accepted';
  } catch (error) {
    return `${/** @type {{ code?: string }} */ (error).code} ${/** @type {Error} */ (error).message}`;
  }
};

const RoPE = /** @type {const} */ ({ pairing: 'half', base: 10000 });
const data = Float32Array.from({ length: 2 * 4 * 64 }, (_, i) => Math.sin(i));
const shape = [2, 4, 64];
/** @param {'cpu' | import('ropewalk').Backend} backend */
const turned = async (backend) => {
  const rw = await ropewalk({ backend });
  const x = rw.upload(data, { shape });
  return { rw, x, y: await rw.rope(x, [5, 131071], RoPE).read() };
};

/** Opens WebNN after the browser has restarted its GPU process. Until then WebNN refuses to open. */
const openWhenThere = async (tries = 600) => {
  for (; ; tries--) {
    try {
      return await openWebnn();
    } catch (error) {
      if (tries === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
};

const { navigator } = /** @type {any} */ (globalThis);
/** The context that was opened last. */
let context = /** @type {any} */ (undefined);
let created = 0;
if (navigator.ml) {
  const { createContext } = navigator.ml;
  navigator.ml.createContext = async (/** @type {unknown[]} */ ...given) => {
    context = await createContext.apply(navigator.ml, given);
    return context;
  };
  const { prototype } = /** @type {any} */ (globalThis).MLContext;
  const { createTensor } = prototype;
  /** @this {unknown} @param {unknown[]} given */
  prototype.createTensor = function (...given) {
    created++;
    return createTensor.apply(this, given);
  };
}

/** The violations that the Content-Security-Policy stopped, such as code from strings and other hosts. */
const blocked = /** @type {string[]} */ ([]);
addEventListener('securitypolicyviolation', (event) => blocked.push(`${event.violatedDirective} ${event.blockedURI}`));

const why = await whyNotWebnn();
const opened = await refusal(openWebnn);
if (opened !== 'accepted') console.log(JSON.stringify({ why, opened }));
else {
  const cpu = await turned('cpu');
  const webnn = await turned(await openWebnn());
  const different = webnn.y.filter((value, i) => Math.abs(value - (cpu.y[i] ?? NaN)) > 1e-6).length;

  // 1 GiB kills the GPU process of every tab, although the browser says that it accepts twice as much.
  const before = created;
  const tooLarge = await refusal(() => webnn.rw.allocate('f32', [2 ** 28]));
  const asked = created - before;

  const queued = webnn.rw.rope(webnn.x, [5, 131071], RoPE);
  context.destroy();
  const reading = await refusal(() => queued.read());
  await context.lost;
  const running = await refusal(() => webnn.rw.rope(webnn.x, [5, 131071], RoPE));
  const again = await turned(await openWebnn());
  const same = again.y.every((value, i) => value === webnn.y[i]);

  /** @type {any} */ (globalThis).afterDeath = async () => {
    await context.lost;
    const dead = await refusal(() => again.rw.rope(again.x, [5, 131071], RoPE));
    const reborn = await turned(await openWhenThere());
    return { dead, same: reborn.y.every((value, i) => value === webnn.y[i]) };
  };
  const capabilities = again.rw.capabilities();
  console.log(
    JSON.stringify({ why, opened, capabilities, different, tooLarge, asked, reading, running, same, blocked }),
  );
}
