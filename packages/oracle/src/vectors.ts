/** Vectors of peers as cases: finds out whose form a folder has, and reads it. @module */
import { fail, refuse } from 'ropewalk/backend';
import { readFolder, readManifest, type VectorFolder, whereOf } from './folder.js';
import type { OnnxLoader } from './golden/read.js';
import { goldenVectorCases } from './golden/suite.js';
import type { ConformanceCase } from './runner.js';
import { CALL_SUITES, callVectorCases } from './vectors/calls.js';
import { ggmlVectorCases } from './vectors/ggml.js';
import { huggingfaceVectorCases } from './vectors/huggingface.js';
import { infiniopVectorCases } from './vectors/infiniop.js';
import { llaisysVectorCases } from './vectors/llaisys.js';
import { onnxVectorCases } from './vectors/onnx.js';

/**
 * Reads a folder of vectors.
 *
 * @param folder - a folder with a manifest.json in a peer's form, or a folder of such folders
 * @param onnx - reads tensors that are in ONNX files only, which `ropewalk vectors --format onnx` writes
 * @returns the cases, whose files are read when they run
 * @throws {RopewalkError} FORMAT when there is no manifest, or one in an unknown form
 */
export function vectorCases(folder: VectorFolder, onnx?: OnnxLoader): ConformanceCase[] {
  readFolder(folder, 'vectors: folder');
  if (folder.has('manifest.json')) return casesOf(folder, onnx);
  const below = folder.folders().filter((child) => child.has('manifest.json'));
  if (below.length === 0)
    fail('FORMAT', whereOf(folder), 'it has no manifest.json, and no folder directly in it has one.');
  return below.flatMap((child) => casesOf(child, onnx));
}

function casesOf(folder: VectorFolder, onnx: OnnxLoader | undefined): ConformanceCase[] {
  const manifest = readManifest(folder, 'manifest.json');
  if (typeof manifest.raw('format') === 'string') return goldenVectorCases(folder, onnx);
  const suite = manifest.optionalText('suite') ?? '';
  if (manifest.has('opset')) return onnxVectorCases(folder, manifest);
  if (suite.startsWith('huggingface')) return huggingfaceVectorCases(folder, manifest);
  if (suite.startsWith('llaisys')) return llaisysVectorCases(folder, manifest);
  for (const name of CALL_SUITES) if (suite.startsWith(name)) return callVectorCases(folder, manifest, name);
  if (suite.startsWith('infiniop')) return infiniopVectorCases(folder, manifest);
  if (manifest.has('meta') && manifest.has('cases')) return ggmlVectorCases(folder, manifest);
  return refuse(
    'FORMAT',
    `${whereOf(folder)}/manifest.json`,
    'the form of the ggml, onnx, llaisys, infiniop, huggingface, cann, flash-attn or onnx-contrib vectors',
    manifest.keys(),
    'A folder that `ropewalk vectors` wrote says so in its field format.',
  );
}
