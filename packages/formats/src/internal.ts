/** Functions for the other packages of Ropewalk. They promise nothing, and change without notice. @module */
export { countClaimed, elementsAt } from './bytes.js';
export { joinGguf, partNames } from './shards.js';
