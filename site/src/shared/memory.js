// sandbox.ts puts this before the visitor's kernel: what it asks for in typed arrays, all together, is bounded. The browser
// bounds other objects, and ends the frame's process at that bound.
{
  const MOST = 2 ** 28; // bytes; the largest case has 40 thousand
  let asked = 0;
  const names =
    'ArrayBuffer Int8 Uint8 Uint8Clamped Int16 Uint16 Int32 Uint32 BigInt64 BigUint64 Float16 Float32 Float64';
  for (const stem of names.split(' ')) {
    const name = stem === 'ArrayBuffer' ? stem : `${stem}Array`;
    const own = self[name]; // not every browser has Float16Array
    if (!own) continue;
    self[name] = new Proxy(own, {
      construct(target, args, newTarget) {
        const [from] = args;
        const length =
          typeof from === 'object' ? (from instanceof ArrayBuffer ? 0 : (from?.length ?? 0)) : Number(from);
        asked += (target.BYTES_PER_ELEMENT ?? 1) * (length || 0);
        if (asked > MOST)
          throw new RangeError(`the kernel asked for more than ${MOST / 2 ** 20} MB of typed arrays, all together`);
        return Reflect.construct(target, args, newTarget);
      },
    });
    own.prototype.constructor = self[name]; // slice and map make their copies by it
  }
}
