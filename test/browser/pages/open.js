/**
 * Runs in a page. It opens the fastest backend, then asks for cpu. It logs `{ auto, cpu }`: the capabilities, and the
 * refusal or ''.
 */
import { ropewalk } from 'ropewalk';

const rw = await ropewalk();
const cpu = await ropewalk({ backend: 'cpu' }).then(
  () => '',
  (error) => `${error.code} ${error.message}`,
);
console.log(JSON.stringify({ auto: rw.capabilities(), cpu }));
