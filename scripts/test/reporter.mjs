/** A reporter of node:test for run.mjs: it writes a line of JSON for each test that ended. */

export default async function* report(events) {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const { name, nesting, skip, todo, details } = data;
    // A suite counts only when it is skipped as a whole, because Node then does not report its tests.
    if (details.type === 'suite' && type === 'test:pass' && !skip) continue;
    // With --test-name-pattern, Node reports all other tests as skipped.
    if (typeof skip === 'string' && /does not match/.test(skip)) continue;
    // A suite whose tests fail is not counted as another failure.
    if (details.type === 'suite' && details.error?.failureType === 'subtestsFailed') continue;
    const skipped = skip === true ? 'no reason given' : skip;
    yield `${JSON.stringify({ name, nesting, ok: type === 'test:pass', skipped, todo, ms: details.duration_ms })}\n`;
  }
}
