/** What other packages of Ropewalk use of this one. No promise: it changes without notice. @module */
export { joinGguf, partNames } from './shards.js';
