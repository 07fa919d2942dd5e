/** Check. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Check() {
  return <h1>What this browser gets right</h1>;
}

render(<Check />, document.querySelector('#main')!);
