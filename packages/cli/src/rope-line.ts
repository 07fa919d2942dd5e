/** The form of a `ROPE(…)` line. It is a file of its own, so that commands that read files load no reader of lines. @module */

/** Whether a text is a `ROPE(…)` line. */
export const isRopeLine = (text: string): boolean => /^\s*ROPE(_BACK)?\s*\(/.test(text);
