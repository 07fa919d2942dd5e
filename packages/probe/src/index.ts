/**
 * Says what a model server really computes: its log-probabilities beside those of the model's files.
 *
 * @module @ropewalk/probe
 */

export { type Change, type ChangeableEngine, changeableEngine } from './change.js';
export { type Access, type Exchange, parseRecording } from './http.js';
export type { Kind } from './hypotheses.js';
export type { Fit, Judgement, Span, Verdict } from './judge.js';
export { reportSvg } from './picture.js';
export { type ProbeOptions, type ProbeReport, probe } from './probe.js';
export { reportLines, selfLines } from './say.js';
export { probeSelf, type SelfOptions, type SelfReport, type Way, type WayReport } from './self.js';
export type { Api } from './server.js';
