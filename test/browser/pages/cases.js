/** Pages import this to get the cases of every suite. It fetches their files from the site. */
import { extendedCases, goldenOperatorSuite, goldenRopeSuite, publishedCases, vectorCases } from '@ropewalk/oracle';

/**
 * Fetches every file that a manifest names.
 *
 * @param {string} name - a folder of vectors
 */
async function open(name) {
  const files = new Map();
  /** @param {string} path */
  const fetchFile = async (path) => {
    const response = await fetch(`/vectors/${name}/${path}`);
    if (response.ok) files.set(path, new Uint8Array(await response.arrayBuffer()));
  };
  await Promise.all(['manifest.json', 'errors.json', 'invalid_descriptors.json'].map(fetchFile));
  const named = new TextDecoder().decode(files.get('manifest.json')).matchAll(/"([^"]+\.(?:npy|bin))"/g);
  await Promise.all([...new Set([...named].map((match) => match[1] ?? ''))].map(fetchFile));
  return {
    name,
    /** @param {string} path */
    has: (path) => files.has(path),
    /** @param {string} path */
    read: (path) => files.get(path),
    folders: () => [],
  };
}

/** Lists every case of every suite. */
export async function allCases() {
  const vectors = [];
  // The folders are opened one after another, because Chromium refuses so many requests at once.
  for (const name of ['cann', 'flash-attn', 'ggml', 'huggingface', 'infiniop', 'llaisys', 'onnx', 'onnx-contrib'])
    vectors.push(await open(name));
  return [
    ...publishedCases(),
    ...extendedCases(),
    ...goldenRopeSuite(),
    ...goldenOperatorSuite(),
    ...vectors.flatMap((folder) => vectorCases(folder)),
  ];
}
