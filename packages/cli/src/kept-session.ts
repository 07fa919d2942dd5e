/** A session that `ropewalk generate --session` keeps in a file. @module */
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { writeWhole } from '@ropewalk/formats/internal/node';
import { type KeptSession, keepSession, type Model, restoreSession, saveSession } from '@ropewalk/model';

/** Takes up the session that a file holds, or opens one if there is no such file yet, and writes it after `work`. */
export function inSession<T>(model: Model, file: string, work: (session: KeptSession) => Promise<T>): Promise<T> {
  return writeWhole(file, { sizeBytes: 0, inputs: [], force: true, kind: 'file' }, async (temporary) => {
    const session = existsSync(file) ? await restoreSession(model, await readFile(file)) : keepSession(model);
    const result = await work(session);
    await writeFile(temporary, await saveSession(model, session));
    return result;
  });
}
