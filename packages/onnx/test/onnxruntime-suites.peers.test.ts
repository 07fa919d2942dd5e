/**
 * Tests of the backend `onnxruntime` with every suite of `ropewalk check`, in both forms, and with every operator,
 * dtype and mix of dtypes that a plan may have. docs/onnxruntime.md lists exactly the cases that do not pass.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { builtInCases } from '@ropewalk/cli/internal';
import { extendedCases, runCases } from '@ropewalk/oracle';
import { ROOT } from '../../../test/support/build.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { holdAgainstReference } from '../../../test/support/sweeps.js';
import { type OnnxruntimeBackend, openOnnxruntime } from '../src/onnxruntime/host.js';

const FORMS = ['standard', 'primitives'] as const;
type Form = (typeof FORMS)[number];

const open = new Map<Form, OnnxruntimeBackend>();
if (!noOnnxruntime)
  for (const form of FORMS) open.set(form, await openOnnxruntime({ form, threads: form === 'standard' ? 1 : 2 }));
after(() => {
  for (const backend of open.values()) backend.dispose();
});

/** The cases that docs/onnxruntime.md lists as not passing in a form. */
function listed(form: Form): string[] {
  const text = readFileSync(join(ROOT, 'docs/onnxruntime.md'), 'utf8');
  const section =
    /^## What does not pass\n(.*?)(?=^## )/ms.exec(text)?.[1] ??
    assert.fail('docs/onnxruntime.md: no section "What does not pass"');
  return [...section.matchAll(/^- (\w+) `([^`]+)`/gm)]
    .filter(([, which]) => which === form)
    .map(([, , label]) => label!);
}

describe('every suite', { skip: noOnnxruntime }, () => {
  for (const form of FORMS) {
    test(`${form}: all cases pass but those that docs/onnxruntime.md names`, async () => {
      const cases = builtInCases();
      const other: string[] = [];
      for await (const { label, verdict } of runCases(cases, open.get(form)!))
        if (verdict.status !== 'ok') other.push(label);
      assert.ok(cases.length >= 645, `${cases.length} cases`);
      assert.deepEqual(other.sort(), listed(form).sort());
    });
  }

  test('angles in f32: reduced exactly they pass where plain products do not', async () => {
    const far = extendedCases().filter(({ label }) => label.includes('131071') && label.includes('type=f32'));
    for (const angles of ['f32-reduced', 'f32'] as const) {
      const backend = await openOnnxruntime({ form: 'primitives', angles });
      const failed: string[] = [];
      for await (const { label, verdict } of runCases(far, backend)) if (verdict.status !== 'ok') failed.push(label);
      backend.dispose();
      assert.ok(
        angles === 'f32' ? failed.length > far.length / 2 : failed.length === 0,
        `${angles}: ${failed.length} of ${far.length}`,
      );
    }
  });
});

describe('every operator, dtype and mix of dtypes', { skip: noOnnxruntime }, () => {
  for (const form of FORMS) test(form, () => holdAgainstReference(open.get(form)!, form));
});
