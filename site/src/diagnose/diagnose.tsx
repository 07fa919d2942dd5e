/** Diagnose. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Diagnose() {
  return <h1>What a kernel did wrong</h1>;
}

render(<Diagnose />, document.querySelector('#main')!);
