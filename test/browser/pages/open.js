/**
 * Runs in a page: opens the fastest backend, then asks for cpu. Logs `{ auto, cpu }`: capabilities, and the refusal or
 * ''.
 */
import { ropewalk } from 'ropewalk';

const rw = await ropewalk();
const cpu = await ropewalk({ backend: 'cpu' }).then(
  () => '',
  (error) => `${error.code} ${error.message}`,
);
console.log(JSON.stringify({ auto: rw.capabilities(), cpu }));
